"""optaned: language models larger than the machine's DRAM, served from tiers of memory, with a thermal guard."""

__version__ = "0.1.0"
