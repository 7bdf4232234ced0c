"""Shared by `demo`, `bench` and the soak: load a job, follow it, break it, verify it."""
