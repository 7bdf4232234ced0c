"""The Spark worker: follows a job's tokens. README.md has its rooms and invariants."""
