"""optaned.toml: its schema, how it is read, how names become declarations, how faults are told to people."""
