"""`perseid up` and `perseid down`."""

from __future__ import annotations

from perseid.errors import RefusedError


def up() -> None:
    """Not built yet."""
    raise RefusedError("`perseid up` is not built yet")


def down() -> None:
    """Not built yet."""
    raise RefusedError("`perseid down` is not built yet")
