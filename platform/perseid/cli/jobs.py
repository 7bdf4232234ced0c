"""`perseid jobs` and `perseid init`."""

from __future__ import annotations

import typer

from perseid.errors import RefusedError

app = typer.Typer()


@app.callback()
def group() -> None:
    """Jobs."""


def init() -> None:
    """Not built yet."""
    raise RefusedError("`perseid init` is not built yet")
