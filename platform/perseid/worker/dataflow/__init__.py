"""What runs within an epoch and where rows go: pure, from job, layout and tokens."""
