"""perseid.embedded."""
