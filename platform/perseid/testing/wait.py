"""Waiting for a condition in tests, instead of sleeps."""

from perseid.embedded.waiting import WaitedInVain, until

__all__ = ["WaitedInVain", "until"]
