"""perseid.jobs."""
