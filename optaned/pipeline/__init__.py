"""The stages from a resolved configuration to a request that an engine can load: probe, index, plan, load."""
