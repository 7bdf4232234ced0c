"""What outlives a process: the state log on a host, checkpoints in a store, counters in Redis."""
