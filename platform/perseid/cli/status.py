"""`perseid status`."""

from __future__ import annotations

from perseid.errors import RefusedError


def status() -> None:
    """Not built yet."""
    raise RefusedError("`perseid status` is not built yet")
