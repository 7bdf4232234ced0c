"""perseid.cli."""
