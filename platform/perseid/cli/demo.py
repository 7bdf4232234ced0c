"""`perseid demo`."""

from __future__ import annotations

from perseid.errors import RefusedError


def demo() -> None:
    """Not built yet."""
    raise RefusedError("`perseid demo` is not built yet")
