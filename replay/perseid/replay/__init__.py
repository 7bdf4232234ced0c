"""Audit replay: runs old tokens again and compares (comes with its own issue)."""
