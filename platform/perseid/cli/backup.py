"""`perseid backup` and `perseid restore`: a deployment's data outside of Kafka."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from perseid.cli import output

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The backup's folder.")]


def backup(
    folder: Folder,
    *,
    copies: Annotated[
        bool,
        typer.Option("--copies/--no-copies", help="Copy archives and checkpoints, or name them."),
    ] = True,
    data: output.Data = None,
    as_json: output.Json = False,
    dry_run: output.DryRun = False,
) -> None:
    """Write jobs, plans, generations and checkpoints into a new folder while jobs run.

    Kafka's topics are not in it: back them up, or replicate them, with Kafka's own means.
    """
    from perseid.cli.jobs import connected
    from perseid.embedded import deployment
    from perseid.jobs.operations import backup as backups
    from perseid.records.version import this_build

    with connected(data) as cluster:
        if dry_run:
            names = sorted(cluster.registry.jobs())
            if as_json:
                output.document({"would_back_up": names})
            else:
                output.lines([f"would back up: {', '.join(names) or 'no job'}"])
            return
        made = backups.take(
            cluster, folder, this_build(), deployment(data).name, cluster.clock.wall_ms(),
            copied=copies,
        )  # fmt: skip
    jobs = [
        {"name": job.name, "generation": int(job.nodes.get("generation", "0")),
         "checkpoint": p.pointers[0].epoch if (p := job.pointers()) and p.pointers else None}
        for job in made.jobs if not job.is_removed
    ]  # fmt: skip
    if as_json:
        output.document({"folder": str(folder), "jobs": jobs, "files": len(made.files),
                         "copied": made.copied})  # fmt: skip
    else:
        output.table(("job", "generation", "checkpoint"), [tuple(job.values()) for job in jobs])
        what = "copied" if made.copied else "named, not copied"
        output.lines([f"{folder}: {len(jobs)} jobs; {len(made.files)} files {what}"])


def restore(
    folder: Folder,
    *,
    jobs: Annotated[
        list[str] | None, typer.Option("--job", metavar="JOB", help="Only this one; repeat it.")
    ] = None,
    data: output.Data = None,
    as_json: output.Json = False,
    dry_run: output.DryRun = False,
) -> None:
    """Restore jobs from a backup into a ZooKeeper that does not have them, next to the same Kafka.

    They resume exactly once: epochs that are already committed are computed again, but not written
    again.
    """
    from perseid.cli.jobs import connected
    from perseid.embedded import deployment
    from perseid.jobs.operations import restore as restores
    from perseid.records.version import this_build
    from perseid.topics.log import KafkaLogReader

    with closing(KafkaLogReader(deployment(data).brokers())) as reader:
        with connected(data) as cluster:
            done = restores.restore(
                cluster, reader, folder, this_build(), jobs or (), dry_run=dry_run
            )
    if as_json:
        output.document({"restored": [asdict(one) for one in done], "dry_run": dry_run})
        return
    output.table(
        ("job", "wanted", "generation", "checkpoint", "epochs to run again"),
        [(r.name, r.desired, r.generation, r.epoch, r.replayed) for r in done],
    )
    verb = "would be restored" if dry_run else "restored"
    output.lines([f"{len(done)} jobs {verb}; next: perseid jobs list"])
