"""What-if decisions over a job's graph: what to replicate, what to recover first. See README.md."""
