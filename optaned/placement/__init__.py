"""Pure decisions about which bytes live where."""
