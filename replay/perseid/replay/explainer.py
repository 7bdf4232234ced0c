"""Explains one record of a sink topic, or one key of one epoch (EXPLAIN.md has the steps)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from perseid.errors import RefusedError
from perseid.replay import input_faults, origins, programs
from perseid.replay.answers import Answer, Epoch, debug, named_origins, of_key, of_record
from perseid.replay.auditing import Asked, Auditor
from perseid.replay.explained import (
    Earlier,
    Explained,
)
from perseid.replay.explaining import Lineage
from perseid.replay.narrowing import with_keys
from perseid.replay.one_process import OneProcessRun, refuse_sql
from perseid.replay.request import Request
from perseid.replay.reruns import EpochReruns
from perseid.replay.running import apart, plan_of

if TYPE_CHECKING:
    from perseid.clocks import Clock
    from perseid.jobs.model.spec import JobSpec
    from perseid.records import Deployment, Plan
    from perseid.registry import Registry
    from perseid.replay.one_process import OneProcess
    from perseid.replay.origins import Origin
    from perseid.replay.traces import Trace
    from perseid.replay.watching import Note
    from perseid.topics.admin import TopicReader

SEARCH_S = 5.0  # of one search by halves; without a limit a large epoch would take hours


@dataclass(frozen=True, slots=True)
class Options:
    """`folder`: for its files. `since`: also count earlier rows of the key, from the base on.

    `debug`: run the operator again under pdb. `revision`: `--rev`, None for the recorded one.
    """

    folder: Path
    since: bool = False
    debug: bool = False
    revision: str | None = None


Explains = Callable[[Epoch], "Answer | None"]


class Explainer:
    """Each of `record` and `key` runs one epoch again, in this process."""

    def __init__(
        self, deployment: Deployment, registry: Registry, topics: TopicReader, clock: Clock,
        options: Options, note: Note,
    ) -> None:  # fmt: skip
        self._deployment, self._registry, self._topics = deployment, registry, topics
        self._clock, self._options, self._note = clock, options, note
        self._started_s = clock.monotonic_s()
        self._runs = 0

    def record(self, topic: str, partition: int, offset: int) -> Explained:
        """Raises RefusedError where it cannot be explained, and what ends a run."""
        from perseid.topics.ranges import ColumnReader

        writers = self._writers(topic)
        job = writers[0].job
        settings = apart(self._deployment, job, self._options.folder, 1)
        with closing(ColumnReader(settings.brokers(job))) as reader:
            found = origins.record(reader, self._topics, topic, partition, offset)
            among = origins.origins(found, writers, reader, self._topics)
            sure, open_ = origins.own(found, among, reader)
            groups: dict[tuple[str, int], list[Origin]] = {}
            for origin in sure or open_:
                groups.setdefault((origin.job, origin.epoch), []).append(origin)
            for (job, epoch), some in groups.items():
                explains = partial(of_record, found=found, among=some, reader=reader)
                explained = self._explained(job, epoch, explains)
                if explained is not None:
                    return explained
        raise RefusedError(
            f"{found} is not made again by {named_origins(among)}: another program wrote it, or "
            "that job is not deterministic; `perseid replay` audits these epochs"
        )

    def key(self, job: str, text: str, epoch: int, operator: str | None) -> Explained:
        """Raises as `record`; UsageError for a key that cannot be one."""
        explains = partial(of_key, text=text, operator=operator)
        found = self._explained(job, epoch, explains)
        assert found is not None, "of a key there is an answer or an error"
        return found

    # Which job ----------------------------------------------------------------------------------

    def _writers(self, topic: str) -> list[origins.Writer]:
        """The applied jobs with a sink that writes the topic."""
        specs: dict[str, JobSpec] = {}
        writers = []
        for job in sorted(self._registry.jobs()):
            stored, plan = self._registry.job_entry(job), self._registry.plan(job)
            if stored is None or plan is None or plan.job_uuid != stored.value.uuid:
                continue
            settings = apart(self._deployment, job, self._options.folder, 1)
            spec = programs.read(programs.Program(plan.revision, plan.archive), settings)
            specs[job] = spec
            if any(sink.topic == topic for sink in spec.sinks.values()):
                writers.append(origins.Writer(job, plan.job_uuid))
        origins.refuse_letters(topic, specs)
        if not writers:
            sinks = sorted({s.topic for spec in specs.values() for s in spec.sinks.values()})
            raise RefusedError(
                f"{topic} is not a sink of any applied job; sinks are: {', '.join(sinks) or 'none'}"
            )
        return writers

    # One epoch ----------------------------------------------------------------------------------

    def _explained(self, job: str, epoch: int, explains: Explains) -> Explained | None:
        options = self._options
        asked = Asked(job, Request(epochs=(epoch, epoch)), options.folder, 1, options.revision)
        auditor = Auditor(
            self._deployment, self._registry, self._topics, self._clock, asked, self._note
        )
        subject = auditor.subject()
        spec = programs.read(subject.audited, auditor.settings)
        refuse_sql(spec)
        gone = input_faults.missing(subject.span.tokens.values(), self._topics)
        if gone:
            raise RefusedError(f"epoch {epoch} of {job} cannot run again: {gone}")
        span = subject.span
        self._note(f"{job}: epochs {span.base_epoch + 1} to {epoch} run again, from {span.base}")
        run = partial(self._run, auditor.settings, plan_of(job, subject.audited.archive, span))
        again = self._epoch(run(epoch, lambda _trace: None), spec)
        answer = explains(again)
        if answer is None:
            return None
        if options.debug:
            debug(again, answer)
        earlier: list[Earlier] = []
        since = options.since and answer.task.stateful
        if since and span.base_epoch < epoch - 1:
            run(epoch - 1, partial(note_rows, earlier, spec, answer))
        seconds = round(self._clock.monotonic_s() - self._started_s, 3)
        return replace(
            answer.found, earlier=tuple(earlier) if since else None, job_uuid=span.job_uuid,
            revision=subject.audited.revision, base=span.base,
            epochs=epoch - span.base_epoch, seconds=seconds,
        )  # fmt: skip

    def _run(
        self, settings: Deployment, plan: Plan, last: int, seen: Callable[[Trace], None]
    ) -> OneProcess:
        self._runs += 1
        folder = self._options.folder / f"run-{self._runs}"
        run = OneProcessRun(settings, plan, last, folder, seen)
        run.run()
        return run.runner

    def _epoch(self, runner: OneProcess, spec: JobSpec) -> Epoch:
        reruns = EpochReruns(runner)
        trace, layout = runner.executor.trace, runner.context.layout
        return Epoch(runner, spec, reruns, Lineage(trace, spec, layout, reruns, self._budget))

    def _budget(self) -> Callable[[], bool]:
        end_s = self._clock.monotonic_s() + SEARCH_S
        return lambda: self._clock.monotonic_s() < end_s


def note_rows(earlier: list[Earlier], spec: JobSpec, of: Answer, trace: Trace) -> None:
    """Adds how many rows of the keys the partition has read in an epoch, if any."""
    names = spec.operators[of.task.operator].inputs
    tables = trace.inputs(of.task.gid, names).values()
    rows = sum(len(table if of.keys is None else with_keys(table, of.keys)) for table in tables)
    if rows:
        earlier.append(Earlier(trace.order.token.epoch, rows))
