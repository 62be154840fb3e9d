"""The guard process: sensors, decisions, fans and the thermal word. Small; it knows no model, no API and no backend."""
