"""Following a config repository: the revision of its ref is applied. See jobs/FOLLOWING.md."""
