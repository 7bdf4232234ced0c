"""From job.yaml to a job, or everything that is wrong with it at once."""
