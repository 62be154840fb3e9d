"""Which bytes deserve fast memory: heat, skew, plans, moves and what they bring. Pure: numpy, no clock, disk or log."""
