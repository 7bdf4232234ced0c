"""`perseid tokens new`: tokens for the coordinator's HTTP API."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perseid.cli import output

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def group() -> None:
    """Make tokens for the coordinator's HTTP API."""


@app.command(epilog="Example: perseid tokens new ann --role operator --file tokens.txt")
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who will use it; once a file.")],
    role: Annotated[str, typer.Option("--role", help="viewer, operator or admin.")],
    file: Annotated[Path, typer.Option("--file", help="The token file; made if it is not there.")],
    as_json: output.Json = False,
    dry_run: output.DryRun = False,
) -> None:
    """Make a token and print it, this once: the file has only its SHA-256.

    Coordinators that were started with --api-tokens FILE know it at once. To take a token back,
    delete its line.
    """
    from perseid.coordinator.api import tokens
    from perseid.errors import UsageError

    if role not in tokens.ROLES:
        raise UsageError(f"--role {role[:20]!r}: expected {', '.join(tokens.ROLES)}")
    secret = tokens.added(file, name, tokens.ROLES[role], dry_run=dry_run)
    if as_json:
        shown = {"name": name, "role": role, "file": str(file), "token": secret}
        output.document(shown | {"dry_run": dry_run})
    elif secret is None:
        output.lines([f"would add {name} as {role} to {file}"])
    else:
        output.lines([secret])
        output.note(f"perseid: {name} is {role} in {file}; the token is shown only now")
