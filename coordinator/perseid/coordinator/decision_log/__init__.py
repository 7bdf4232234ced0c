"""What a leader decided, in files: its events, and what the core made of them, to be replayed."""
