"""What people do to applied jobs: apply, start, stop, checkpoint, back up, restore."""
