"""Edges of the operating system, a file each. Knows no model, no API and no policy."""
