"""What this repository's own tests share and no user needs: servers under a test's control."""
