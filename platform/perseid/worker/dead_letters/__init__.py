"""Refused records, the search for them, and their reports to the user."""
