"""The governor: from temperatures to level, duty and cooling demand. Pure: no clock, no disk, no socket, no log."""
