"""perseid.coordinator."""
