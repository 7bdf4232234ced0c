"""perseid.replay."""
