"""Drawings in files, PNG or SVG. Matplotlib, an extra, is imported only to draw.

Figures are made and saved without pyplot: so no window, display or global state is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perseid.cli import output
from perseid.errors import BadInputError, RefusedError, UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENDINGS = (".png", ".svg")
SETTINGS: dict[Any, Any] = {
    "text.parse_math": False,  # names are the user's: a $ in them is a $
    "svg.fonttype": "none",  # text that can be searched
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def _checked(path: Path | None) -> Path | None:
    """Checks what is known before a long computation: ending, folder, matplotlib."""
    if path is None:
        return None
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(f"--plot {path}: expected a file ending in {' or '.join(ENDINGS)}")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"--plot {path}: there is no folder {path.parent}")
    check_installed()
    return path


def check_installed() -> None:
    """RefusedError with what to install when there is no matplotlib."""
    try:
        import matplotlib as _  # noqa: F401
    except ImportError as error:
        raise RefusedError(
            "plots need matplotlib, which is not installed (perseid's extra `plot`): "
            "type `pip install 'matplotlib>=3.10,<4'`, or leave --plot out"
        ) from error


Plot = Annotated[
    Path | None,
    typer.Option("--plot", metavar="FILE", callback=_checked, help="Draw it: a .png or .svg."),
]


@contextmanager
def figure(wide: float, high: float, *paths: Path) -> Iterator[Figure]:
    """A figure of so many inches; at the end it is written to each path, by the path's ending."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(SETTINGS):
        drawn = Figure(figsize=(wide, high), layout="constrained")
        yield drawn
        for path in paths:
            try:
                drawn.savefig(path, dpi=150)
            except OSError as error:
                raise BadInputError(f"{path}: the drawing cannot be written: {error}") from error
            output.note(f"drew {path}")
