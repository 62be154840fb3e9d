"""Frozen records and their arithmetic. No I/O, no clock, no logging."""
