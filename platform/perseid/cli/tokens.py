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
    """Make a token and print it, only this once: the file has only its SHA-256.

    Coordinators that were started with --api-tokens FILE accept it at once. To revoke a token,
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


@app.command(epilog="Example: perseid tokens init access monitor=viewer ann=admin")
def init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Gets `tokens` and NAME.token.")],
    wanted: Annotated[list[str], typer.Argument(metavar="NAME=ROLE...", help="Who gets a token.")],
    as_json: output.Json = False,
) -> None:
    """Make the token file of a new deployment, and a file with the token of each name.

    For machines that read them (--api-tokens FOLDER/tokens, PERSEID_API_TOKEN_FILE). Does nothing
    when FOLDER/tokens is there.
    """
    from perseid.coordinator.api import tokens
    from perseid.errors import UsageError

    roles = {name: role for name, _, role in (pair.partition("=") for pair in wanted)}
    if len(roles) < len(wanted) or not set(roles.values()) <= tokens.ROLES.keys():
        raise UsageError(f"expected different names with a role, NAME={'|'.join(tokens.ROLES)}")
    path = tokens.first(folder, {name: tokens.ROLES[role] for name, role in roles.items()})
    if as_json:
        output.document({"file": str(path)})
    else:
        output.lines([str(path)])
