"""`perseid up` and `perseid down`."""

from __future__ import annotations

from typing import Annotated

import typer

from perseid.cli import output
from perseid.errors import UsageError

MASTERS = ("local[", "standalone", "spark://", "embedded")
Workers = Annotated[
    int | None, typer.Option("--workers", min=0, help="Workers; default 2, or as many as run.")
]
Coordinators = Annotated[
    int | None, typer.Option("--coordinators", min=0, help="Coordinators; default 2.")
]


def _own(what: str, example: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(
        f"--{what}",
        envvar="PERSEID_" + what.upper().replace("-", "_"),
        help=f"Use your own ({example}); kept until you type `embedded`.",
    )
    return option


def up(
    *,
    workers: Workers = None,
    coordinators: Coordinators = None,
    kafka: Annotated[str | None, _own("kafka", "bootstrap servers")] = None,
    zookeeper: Annotated[str | None, _own("zookeeper", "host:port,...")] = None,
    redis: Annotated[str | None, _own("redis", "a URL")] = None,
    master: Annotated[str | None, _own("master", "local[2], standalone or spark://...")] = None,
    store: Annotated[str | None, _own("store", "a folder or a file system URI")] = None,
    schema_registries: Annotated[
        str | None, _own("schema-registries", "NAME=URL,...: those that jobs may name")
    ] = None,
    read_ahead_s: Annotated[
        str | None, _own("read-ahead-s", "how long a micro-batch reads ahead: 0 to 60")
    ] = None,
    spark: Annotated[
        str | None, _own("spark", "Spark's settings: spark.ui.enabled=true ...")
    ] = None,
    data: output.Data = None,
    as_json: output.Json = False,
) -> None:
    """Start the embedded cluster in the background and wait until it is healthy.

    Running processes are left alone, so a second `up` does nothing. Jobs and data of an earlier run
    resume.
    """
    from perseid.embedded import Cluster, Outside

    if master is not None and not master.startswith(MASTERS):
        raise UsageError(
            f"--master {master!r}: write local[2], standalone, embedded or spark://host:port"
        )
    cluster = Cluster(data, note=output.note)
    deployment = cluster.up(workers, coordinators, outside=Outside(
        kafka=kafka, zookeeper=zookeeper, redis=redis, master=master, store=store,
        schema_registries=schema_registries, read_ahead_s=read_ahead_s, spark=spark,
    ))  # fmt: skip
    shown = {
        "data": str(cluster.data),
        "kafka": deployment.kafka,
        "zookeeper": deployment.zookeeper + deployment.chroot,
        "redis": deployment.redis,
        "master": deployment.master,
        "store": deployment.store,
        "state": deployment.state,
        "logs": deployment.logs,
    }
    if as_json:
        output.document({**shown, "processes": cluster.processes()})
        return
    output.fields(shown)
    output.lines([f"{len(cluster.processes()) - 1} processes run; next: perseid status"])


def down(
    *,
    purge: Annotated[bool, typer.Option("--purge", help="Delete all data as well.")] = False,
    data: output.Data = None,
    as_json: output.Json = False,
    dry_run: output.DryRun = False,
) -> None:
    """Stop what `up` started; topics, checkpoints and state stay unless purged."""
    from perseid.embedded import Cluster

    cluster = Cluster(data, note=output.note)
    if dry_run:
        stopped = [info.name for info in cluster.processes() if info.alive]
    else:
        stopped = cluster.down(purge=purge)
    if as_json:
        output.document({"stopped": stopped, "purged": purge and not dry_run, "dry_run": dry_run})
    elif not stopped:
        output.lines([f"nothing runs in {cluster.data}"])
    else:
        output.lines([f"{'would stop' if dry_run else 'stopped'}: {', '.join(stopped)}"])
