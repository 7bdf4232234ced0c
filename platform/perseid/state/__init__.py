"""perseid.state."""
