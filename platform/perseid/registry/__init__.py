"""perseid.registry."""
