"""A job's own Python packages: `requirements.txt` beside job.yaml. See jobs/PACKAGES.md."""
