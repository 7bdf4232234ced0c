"""From job.yaml to a job, or all its mistakes at once."""
