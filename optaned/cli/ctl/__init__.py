"""The verbs of `optanectl`, a file each, and what they share: address, wire, events, answers, terminal."""
