"""`perseid restart`: restarts coordinators and workers one after the other, while jobs run."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from perseid.cli import output


def restart(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="c1, w2, ...; default all.")
    ] = None,
    *,
    data: output.Data = None,
    as_json: output.Json = False,
    dry_run: output.DryRun = False,
) -> None:
    """Restart coordinators and workers one after the other; jobs are handed over and run on.

    Restarted processes run the version that is installed now. Coordinators come first, the leader
    as the last of them.
    """
    from perseid.embedded import deployment, locate, rolling

    settings, chosen = deployment(data), names or []
    if dry_run:
        planned = rolling.planned(locate(data), settings, chosen)
        if as_json:
            output.document({"would_restart": planned})
        else:
            output.lines([f"would restart: {', '.join(planned)}"])
        return
    done = []
    for one in rolling.restart(locate(data), settings, chosen, output.note):
        done.append(one)
        if not as_json:
            output.lines([f"{one.name}: ended after {one.left_s} s, back after {one.away_s} s"])
    if as_json:
        output.document({"restarted": [asdict(one) for one in done]})
