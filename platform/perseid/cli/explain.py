"""`perseid explain`: from which input records a record, or a key's row in an epoch, was made."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perseid.cli import jobs, output
from perseid.cli.replay import become_a_worker, own_folder

if TYPE_CHECKING:
    from perseid.replay.explained import Explained
    from perseid.replay.explainer import Explainer

SECRET_BYTES = 32  # by which values are redacted, once


def explain(
    target: Annotated[
        str, typer.Argument(metavar="TOPIC:PARTITION:OFFSET|JOB", help="A record of a sink topic.")
    ],
    key: Annotated[
        str | None, typer.Option("--key", help="Of JOB: VALUE, COLUMN=VALUE,... or a JSON object.")
    ] = None,
    epoch: Annotated[int | None, typer.Option("--epoch", help="Of JOB.", min=1)] = None,
    operator: Annotated[
        str | None, typer.Option("--operator", help="Of JOB, if it has several with a key.")
    ] = None,
    since: Annotated[
        bool, typer.Option("--since", help="Also count earlier rows of the key, from the base on.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Run the operator again on these rows, under pdb.")
    ] = False,
    rev: Annotated[
        str | None, typer.Option("--rev", help="Files of the revision, if they are not kept.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--folder", help="For its files; default a temporary one.")
    ] = None,
    show_values: Annotated[
        bool, typer.Option("--show-values", help="Show keys, values, rows and state.")
    ] = False,
    data: output.Data = None,
    as_json: output.Json = False,
) -> None:
    """Show who made a record, from which input records, and the state before and after.

    The record's epoch runs again, with those before it from a checkpoint on. Nothing is written.
    """
    ask = _asked(target, key, epoch, operator)
    become_a_worker(with_spark=False)
    from perseid.clocks import SystemClock
    from perseid.embedded import deployment
    from perseid.replay import explained
    from perseid.replay.explainer import Explainer, Options

    with jobs.connected(data) as cluster, own_folder(folder) as mine:
        options = Options(mine, since, debug, rev)
        explainer = Explainer(
            deployment(data), cluster.registry, cluster.topics, SystemClock(), options,
            lambda line: output.note(str(line)),
        )  # fmt: skip
        found = ask(explainer)
    if not show_values:
        found = explained.without_values(found, secrets.token_bytes(SECRET_BYTES))
    if as_json:
        output.document(explained.document(found))
    else:
        output.lines(explained.lines(found))


def _asked(
    target: str, key: str | None, epoch: int | None, operator: str | None
) -> Callable[[Explainer], Explained]:
    """The question; UsageError for one that is none."""
    from perseid.errors import UsageError
    from perseid.replay import origins

    if ":" in target:
        if key is not None or epoch is not None or operator is not None:
            raise UsageError(f"{target[:80]}: --key, --epoch and --operator are for a JOB")
        topic, partition, offset = origins.place(target)
        return lambda explainer: explainer.record(topic, partition, offset)
    if key is None or epoch is None:
        raise UsageError(
            f"{target[:80]!r}: expected {origins.EXPECTED}, or a job with --key and --epoch"
        )
    wanted, of = key, epoch
    return lambda explainer: explainer.key(target, wanted, of, operator)
