"""Checkpoint parts: ordered by epochs, written by a separate process."""
