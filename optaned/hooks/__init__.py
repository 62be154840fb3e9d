"""What plugins declare and implement, and the host that loads and isolates them."""
