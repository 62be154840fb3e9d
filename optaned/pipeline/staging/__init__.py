"""Getting a model's shards onto the mounts that it is served from: find, assign, copy, verify, free."""
