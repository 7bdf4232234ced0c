"""A job's own Python packages: `requirements.txt` next to job.yaml. See jobs/PACKAGES.md."""
