"""`perseid chaos`."""

from __future__ import annotations

import typer

app = typer.Typer()


@app.callback()
def group() -> None:
    """Chaos."""
