"""`perseid bench`."""

from __future__ import annotations

from perseid.errors import RefusedError


def bench() -> None:
    """Not built yet."""
    raise RefusedError("`perseid bench` is not built yet")
