"""perseid.topics."""
