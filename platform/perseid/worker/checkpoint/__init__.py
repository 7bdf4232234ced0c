"""Checkpoint parts: ordered by epochs, written by a process of their own."""
