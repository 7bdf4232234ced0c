"""perseid.testing."""
