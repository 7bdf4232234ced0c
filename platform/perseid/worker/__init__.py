"""perseid.worker."""
