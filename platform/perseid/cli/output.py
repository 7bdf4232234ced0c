"""What verbs print: one JSON document or a table on stdout, everything else on stderr.

With `--json` stdout holds exactly one document, so that a pipe can parse it; notes, progress and
logs always go to stderr. Verbs take the two options as `data: Data = None` and `as_json: Json =
False`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

Data = Annotated[
    Path | None,
    typer.Option("--data", help="The cluster's data folder.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be done, do nothing.")]


def document(value: Any) -> None:
    """Prints `value` as the one JSON document of this command."""
    sys.stdout.write(json.dumps(value, default=_plain, indent=2) + "\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """Prints a line of text on stderr."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def lines(rows: Iterable[str]) -> None:
    """Prints lines of text on stdout."""
    for row in rows:
        sys.stdout.write(row + "\n")
    sys.stdout.flush()


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None) -> None:
    """Prints a table on stdout; outside a terminal it is as wide as its content."""
    from rich.console import Console
    from rich.table import Table

    shown = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for name in columns:
        shown.add_column(name, overflow="fold")
    for row in rows:
        shown.add_row(*("-" if cell is None else str(cell) for cell in row))
    terminal = sys.stdout.isatty()
    Console(highlight=False, markup=False, width=None if terminal else 200).print(shown)


def fields(values: Mapping[str, Any]) -> None:
    """Prints names and values, one per line, aligned."""
    wide = max((len(name) for name in values), default=0)
    lines(f"{name:<{wide}}  {value}" for name, value in values.items())


def error(kind: str, text: str, *, as_json: bool) -> None:
    """Prints an error on stderr; with `--json` also the document, which keeps stdout parseable."""
    note(f"perseid: {text}")
    if as_json:
        document({"error": {"kind": kind, "message": text}})


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if hasattr(value, "model_dump"):
        return value.model_dump()
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    return str(value)
