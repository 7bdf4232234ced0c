"""`perseid demo`: a real job on real parts, broken on purpose, then checked record by record."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perseid.cli import output
from perseid.errors import UsageError

if TYPE_CHECKING:
    from perseid.cli.scenario.bed import AppliedJob, ScenarioBed
    from perseid.cli.scenario.kills import Kill
    from perseid.cli.scenario.pacing import Pacing
    from perseid.cli.scenario.report import View
    from perseid.embedded import Cluster

PREFIX = "demo"
MASTERS = ("local[", "standalone")


@dataclass(frozen=True, slots=True)
class Wish:
    """The user's options."""

    records: int
    rate: float | None
    kills: tuple[Kill, ...]
    seed: int | None

    def pacing(self) -> Pacing:
        from perseid.cli.scenario.pacing import Pacing, default_rate

        rate = self.rate or default_rate(self.records)
        return Pacing(self.records, rate, self.kills, fixed_rate=self.rate is not None)


Kills = Annotated[
    list[str] | None,
    typer.Option(
        "--kill",
        metavar="WHAT[@SECONDS]",
        help="kill -9 in the middle of work: worker, supervisor, python, coordinator, standby, "
        "broker, zookeeper, redis, executor (only with --master standalone). Repeatable.",
        show_default=False,
    ),
]


def demo(
    *,
    records: Annotated[int, typer.Option("--records", min=1, help="Lines to send.")] = 200_000,
    rate: Annotated[
        float | None,
        typer.Option("--rate", min=1, help="Lines a second at most; default: about a minute."),
    ] = None,
    master: Annotated[
        str | None, typer.Option("--master", help="Spark master: local[2] or standalone.")
    ] = None,
    kill: Kills = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Seed of the lines.")] = None,
    data: output.Data = None,
    as_json: output.Json = False,
) -> int:
    """Run wordcount on a stream of lines, kill what you name, and check every record.

    Starts the cluster if it is not there. Exit code 1 when a record was lost, duplicated, reordered
    or wrong, or when a kill did not hit work.
    """
    from perseid.cli.scenario.bed import connect
    from perseid.cli.scenario.kills import parse_all
    from perseid.embedded import Cluster

    if master is not None and not master.startswith(MASTERS):
        raise UsageError(f"--master {master!r}: expected local[2] or standalone")
    wish = Wish(records, rate, parse_all(kill or [], master or _master(data)), seed)
    cluster = Cluster(data, note=output.note)
    deployment = cluster.up(workers=None, coordinators=None, master=master)
    with connect(deployment) as bed:
        document, faults = _play(cluster, bed, wish)
    if as_json:
        output.document(document)
    else:
        _print(document)
    for fault in faults:
        output.note(f"perseid: {fault}")
    return 1 if faults else 0


def _master(data: Path | None) -> str:
    """The master of the running cluster, which stays unless another one is requested."""
    from perseid.embedded import deployment
    from perseid.errors import RefusedError

    try:
        return "standalone" if deployment(data).master.startswith("spark:") else "local"
    except RefusedError:
        return "local"


def _play(cluster: Cluster, bed: ScenarioBed, wish: Wish) -> tuple[dict[str, Any], list[str]]:
    """Sets the job up, runs it to the last line, and has it verified."""
    from perseid.cli.scenario.bed import Names
    from perseid.cli.scenario.report import View

    bed.remove_older(PREFIX)
    names = Names.fresh(PREFIX)
    bed.make_topics(names.source, names.sink)
    output.note(f"applying job {names.job} (the wordcount example)")
    applied = bed.start(names)
    with closing(View()) as view:
        played = _drive(cluster, bed, applied, view, wish)
    bed.stop(names)  # it would use a part of a core for nothing
    output.note(
        f"stopped {names.job}; look at it: perseid topics tail {names.sink}, perseid jobs show "
        f"{names.job}; then: perseid down"
    )
    return played


def _drive(
    cluster: Cluster, bed: ScenarioBed, applied: AppliedJob, view: View, wish: Wish
) -> tuple[dict[str, Any], list[str]]:
    from perseid.cli.scenario.follow import Follower, first_append_ms
    from perseid.cli.scenario.load_generator import LoadGenerator, judge
    from perseid.cli.scenario.nemesis import Nemesis
    from perseid.cli.scenario.pacing import EPOCHS_AFTER_MIN
    from perseid.cli.scenario.progress import Progress
    from perseid.cli.scenario.report import complaints
    from perseid.cli.scenario.run import Run

    names, kafka = applied.names, bed.bootstrap
    pacing = wish.pacing()
    follower = Follower(kafka, names.job, Progress(applied.job_uuid, applied.ledgers))
    nemesis = Nemesis(cluster, bed.registry, names.job)
    with LoadGenerator(kafka, names.source, records=wish.records, seed=wish.seed) as load:
        seed = load.await_seed()
        view.note(f"seed {seed}, {wish.records:,} lines, at most {pacing.base_rate:,.0f}/s")
        run = Run(pacing, follower, load, nemesis, view)
        run.run()
    reports = run.reports(lambda windows, after: first_append_ms(kafka, windows, after))
    follower.close()
    view.note("checking every record against a plain count")
    verdict = judge(kafka, names.source, names.sink)
    document = {
        **{key: verdict[key] for key in ("records", "output_records")},
        **{key: verdict[key] for key in ("lost", "duplicated", "reordered", "wrong")},
        "kills": [asdict(report) for report in reports],
        "epochs": follower.progress.committed_epochs,
        "epochs_after_last_kill": run.epochs_after_last_kill,
        "records_per_s": round(wish.records / run.seconds, 1),
        "seed": seed,
        "job": names.job,
        "examples": verdict["examples"],
    }
    faults = complaints(document, reports, run.epochs_after_last_kill, EPOCHS_AFTER_MIN)
    if verdict["records"] != wish.records:
        faults.append(f"the source topic holds {verdict['records']:,} lines, not {wish.records:,}")
    return document, faults


def _print(document: dict[str, Any]) -> None:
    """Prints the result as text."""
    output.fields(
        {
            "lines in": f"{document['records']:,}",
            "records out": f"{document['output_records']:,}",
            **{k: f"{document[k]:,}" for k in ("lost", "duplicated", "reordered", "wrong")},
            "epochs": f"{document['epochs']:,}",
            "lines/s": f"{document['records_per_s']:,}",
            "seed": document["seed"],
        }
    )
    columns = ("what", "pid", "at_s", "epoch_in_flight", "owner_before", "owner_after",
               "seconds_to_output")  # fmt: skip
    if document["kills"]:
        output.lines([""])
        output.table(columns, [[kill[c] for c in columns] for kill in document["kills"]])
    for example in document["examples"]:
        output.lines([example])
