"""Records that are refused, the search for them, and how the user is told."""
