"""Waiting for a condition in tests, in place of sleeps."""

from perseid.embedded.waiting import WaitedInVain, until

__all__ = ["WaitedInVain", "until"]
