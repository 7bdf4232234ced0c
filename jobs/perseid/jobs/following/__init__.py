"""Following a config repository: what its ref names is what runs. See jobs/FOLLOWING.md."""
