"""State that survives a process: logs on a host, checkpoints in a store, counters in Redis."""
