"""`perseid test`."""

from __future__ import annotations

from perseid.errors import RefusedError


def test() -> None:
    """Not built yet."""
    raise RefusedError("`perseid test` is not built yet")
