"""Audit replay: runs old tokens again and compares the results (not implemented yet)."""
