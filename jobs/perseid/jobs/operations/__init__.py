"""Operations on applied jobs: apply, start, stop, checkpoint, back up, restore."""
