"""`perseid txn`: transactions that hold readers back, and how to end them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perseid.cli import jobs, output

if TYPE_CHECKING:
    from perseid.cli.open_transactions import Held, Writer
    from perseid.jobs.model.spec import JobSpec
    from perseid.records.access import Bootstrap
    from perseid.topics.admin import TopicAdmin

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

SETTLE_S = 15.0  # until the markers of an aborted transaction are written; usually 0.1 s
_SINCE_S = 2.0


@app.callback()
def group() -> None:
    """List and abort open transactions."""


@app.command("list", epilog="Example: perseid txn list wordcount")
def list_(
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="Only this job's.")] = None,
    data: output.Data = None,
    as_json: output.Json = False,
) -> None:
    """Partitions that an open transaction holds back: since when, and its possible owner."""
    with jobs.connected(data) as cluster:
        found = Transactions(cluster, jobs.bootstrap(data))
        held = found.held(job)
        now_ms = cluster.clock.wall_ms()
    rows = [_row(one, now_ms) for one in held]
    if as_json:
        output.document({"open": rows})
    elif not rows:
        output.note("no transaction is open")
    else:
        columns = ("topic", "partition", "stable", "end", "age_s", "stuck")
        output.table(
            (*columns, "transactional id"), [[*(r[c] for c in columns), _ids(r)] for r in rows]
        )


@app.command(epilog="Example: perseid txn abort wordcount --dry-run")
def abort(
    job: jobs.Job,
    ids: Annotated[
        list[str] | None, typer.Option("--id", help="This one, not all that may be open.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also those of a worker that lives.")
    ] = False,
    data: output.Data = None,
    as_json: output.Json = False,
    dry_run: output.DryRun = False,
) -> None:
    """End the open transactions of a job, and check that nothing is held back any more."""
    from perseid.cli import open_transactions

    with jobs.connected(data) as cluster:
        found = Transactions(cluster, jobs.bootstrap(data))
        held = found.held(job)
        chosen = open_transactions.to_abort(job, held, ids or ())
        open_transactions.check_owner(job, chosen, found.owners(job), force=force)
        concerned = [one for one in held if ids or not one.ids or set(one.ids) & set(chosen)]
        left = [] if dry_run else concerned
        if not dry_run and chosen:
            found.end(chosen)
            left = found.still(concerned, SETTLE_S)
    if as_json:
        now_ms = cluster.clock.wall_ms()
        output.document({
            "job": job, "dry_run": dry_run, "aborted": list(chosen),
            "held": [_row(one, now_ms) for one in concerned],
            "left": [_row(one, now_ms) for one in left],
        })  # fmt: skip
    else:
        done = "would be ended" if dry_run else "ended"
        output.lines(f"{name} {done}" for name in chosen)
        if not chosen:
            output.note(f"no transaction of {job} is open")
    if left:
        output.note(f"perseid: {open_transactions.left_text(left)}")
        raise typer.Exit(1)


class Transactions:
    """The open transactions of the applied jobs."""

    def __init__(self, cluster: Any, bootstrap: Bootstrap) -> None:
        self._cluster, self._bootstrap = cluster, bootstrap
        self._topics: TopicAdmin = cluster.topics

    def held(self, job: str | None = None) -> list[Held]:
        """What is held back of the topics of `job`, or of all jobs."""
        from perseid.cli.open_transactions import held_back, topics_of
        from perseid.jobs.operations import steering

        if job is not None:
            steering.stored_entry(self._cluster.registry, job)  # fails for a wrong name
        specs = self._specs
        wanted = [specs[job]] if job is not None else list(specs.values())
        infos = self._topics.describe(sorted({t for spec in wanted for t in topics_of(spec)}))
        places = [(name, p) for name, info in infos.items() for p in range(info.partitions)]
        known = list(self._writers(specs))
        ends = self._topics.ends(places, committed=False)
        found = held_back(ends, self._topics.ends(places, committed=True), known)
        return [replace(one, since_ms=self._since(one)) for one in found]

    def _writers(self, specs: Mapping[str, JobSpec]) -> Iterator[Writer]:
        from perseid.cli.open_transactions import writers
        from perseid.jobs.model import layout
        from perseid.topics import names

        existing = set(self._topics.list())
        for name, spec in specs.items():
            plan = self._cluster.registry.plan(name)
            built = layout.build(spec, plan.layout if plan is not None else 1)
            yield from writers(spec, built, redriven=names.redriven(name) in existing)

    def owners(self, job: str) -> dict[str, str]:
        """By transactional id of the job, the live worker that has it."""
        from perseid.cli.open_transactions import owners
        from perseid.jobs.model import layout

        registry = self._cluster.registry
        plan = registry.plan(job)
        if plan is None:
            return {}
        living = {worker.incarnation for worker in registry.workers()}
        return owners(plan, layout.build(self._specs[job], plan.layout), living)

    def end(self, ids: Sequence[str]) -> None:
        """Acquires each id, which aborts what is open under it."""
        from perseid.topics.kafka_transactions import KafkaTransactions
        from perseid.worker.sink.committed import end_open_ones

        with closing(KafkaTransactions(self._bootstrap)) as transactions:
            end_open_ones(transactions, ids)

    def still(self, held: Iterable[Held], timeout_s: float) -> list[Held]:
        """Those of `held` that are still held back at the same offset, after a short wait."""
        clock = self._cluster.clock
        deadline_s = clock.monotonic_s() + timeout_s
        left = list(held)
        while left:
            stable = self._topics.ends([one.place for one in left], committed=True)
            left = [one for one in left if stable[one.place] == one.stable]
            if clock.monotonic_s() >= deadline_s:
                break
            clock.sleep(0.1)
        return left

    @cached_property
    def _specs(self) -> dict[str, JobSpec]:
        """The running revisions, else the applied ones."""
        from perseid.jobs.operations import applying

        registry = self._cluster.registry
        found = {}
        with TemporaryDirectory(prefix="perseid-txn-") as scratch:
            for name, entry in registry.jobs().items():
                plan = registry.plan(name)
                ours = plan is not None and plan.job_uuid == entry.uuid
                archive = plan.archive if ours else entry.archive
                found[name] = applying.revision(self._cluster, archive, Path(scratch)).spec
        return found

    def _since(self, held: Held) -> int | None:
        """The time of the first record after the last stable offset; None if it is gone."""
        from perseid.topics.cursor import Cursor

        start = max(held.stable, self._topics.starts([held.place])[held.place])
        with closing(
            Cursor(self._bootstrap, *held.place, start, "read_uncommitted", brief=True)
        ) as cursor:
            found = cursor.fetch(1, _SINCE_S)
        return found[0].timestamp()[1] if found else None


def _row(held: Held, now_ms: int) -> dict[str, Any]:
    age_s = held.age_s(now_ms)
    return {
        "topic": held.topic,
        "partition": held.partition,
        "stable": held.stable,
        "end": held.end,
        "since_ms": held.since_ms,
        "age_s": round(age_s, 1) if age_s is not None else None,
        "stuck": held.stuck(now_ms),
        "transactional_ids": list(held.ids),
        "certain": held.certain,
    }


def _ids(row: dict[str, Any]) -> str:
    ids = row["transactional_ids"]
    if not ids:
        return "of no job here"
    return str(ids[0]) if row["certain"] else f"perhaps {' or '.join(ids)}"
