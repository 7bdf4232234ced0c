"""Audit replay: runs old tokens again, muted, and compares the outputs with what was committed."""
