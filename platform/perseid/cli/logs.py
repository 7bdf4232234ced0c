"""`perseid logs`."""

from __future__ import annotations

from perseid.errors import RefusedError


def logs() -> None:
    """Not built yet."""
    raise RefusedError("`perseid logs` is not built yet")
