"""One audit, from the request to `findings.Audit` (AUDITS.md has its steps)."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from perseid.engine.comparison import Unequal, shown
from perseid.errors import PerseidError, RefusedError
from perseid.jobs.model import layout as layouts
from perseid.records.version import this_build
from perseid.replay import (
    bases,
    input_faults,
    planned,
    programs,
    ranges,
    sampling,
    verdict,
    watching,
)
from perseid.replay.bisecting import Search
from perseid.replay.causes import Causes
from perseid.replay.findings import Audit
from perseid.replay.progress import KeptRun, Progress, loaded
from perseid.replay.request import Request
from perseid.replay.running import AuditRun, apart, archives, plan_of
from perseid.replay.sink_columns import Revision
from perseid.replay.states import within
from perseid.replay.subjects import Begun, Subject
from perseid.replay.verdict import Facts
from perseid.replay.watching import Again, Ports, Watched
from perseid.state.durability.store import open_store
from perseid.topics import codec, names

if TYPE_CHECKING:
    from fractions import Fraction

    from pyspark.sql import SparkSession

    from perseid.clocks import Clock
    from perseid.jobs.model.layout import Layout
    from perseid.records import CheckpointPointer, CheckpointPointers, Deployment, JobEntry, Plan
    from perseid.registry import Registry
    from perseid.replay.planned import Planned
    from perseid.replay.programs import Program
    from perseid.replay.ranges import Past, Range, Sample
    from perseid.replay.tolerances import Tolerances
    from perseid.replay.watching import Note
    from perseid.topics.admin import Partition, TopicReader
    from perseid.topics.log import LogReader

LOG_S = 60.0  # for reading the token log, and the end of a ledger
SEEDS = 1_000_000  # of samples that are drawn by chance


@dataclass(frozen=True)
class Asked:
    """What the user asks for. `revision`: `--rev`, None for the recorded one.

    `folder`: the audit's own, for state logs, scratch and outputs. `tolerances`: by column.
    `sinks`: whether the sink topics are compared with the ledgers; in `mixed` others may write.
    `rate`: records/s that it reads at most.
    """

    job: str
    request: Request
    folder: Path
    cores: int
    revision: str | None = None
    tolerances: Tolerances | None = None
    sinks: bool = True
    mixed: frozenset[str] = frozenset()
    rate: int | None = None


class Auditor:
    """Audits one job. `settings`: the deployment as `running.apart` gives it."""

    def __init__(
        self, deployment: Deployment, registry: Registry, topics: TopicReader, clock: Clock,
        asked: Asked, note: Note, spark: SparkSession | None = None,
        progress: Progress | None = None,
    ) -> None:  # fmt: skip
        """`spark`: used, and left open; the audit's folder stays too. None: one of its own.

        `progress`: of an audit that may have been interrupted; None: it begins.
        """
        self._session, self._progress = spark, progress or Progress(asked.folder)
        self.settings = apart(deployment, asked.job, asked.folder, asked.cores)
        self._registry, self._topics, self._clock = registry, topics, clock
        self._asked, self._note = asked, note
        self._runs = 0
        self._kept: tuple[CheckpointPointer, ...] = ()  # the job's checkpoints
        self._past: Past | None = None  # all of it, where it was read
        self._resolve: Callable[[Request, Past | None], Range]  # as of the last subject
        self._causes = Causes()  # of what differs, in all parts of a sample

    def audit(self) -> Audit:
        """Raises RefusedError where nothing can be audited, and what ends a run."""
        self._causes = Causes()
        return self._audited(Causes)

    def sample(self, share: Fraction, seed: int | None) -> Audit:
        """Like `audit` of a share of the intervals between kept checkpoints; one report of all.

        `seed`: that draws them, None for one by chance. Each part is an audit of its own, whose
        causes are added to those of the parts before it, so that a key counts once.
        """
        drawn = self._progress.once(
            "sample", lambda: self._drawn(self.subject().span, share, seed)
        )  # fmt: skip
        self._note(str(drawn))
        self._causes = Causes()
        audits = []
        for part in drawn.parts:
            self._asked = replace(self._asked, request=Request(epochs=part))
            audits.append(self._audited(lambda: self._causes))
        return sampling.merged(audits, drawn)

    def planned(self, share: Fraction | None = None, seed: int | None = None) -> Planned:
        """What `audit` would do; with a share, what `sample` would. RefusedError as there."""
        subject = self.subject(whole=True)
        assert self._past is not None, "a range was found in it"
        drawn, spans = None, [subject.span]
        if share is not None:
            drawn = self._drawn(subject.span, share, seed)
            spans = [self._resolve(Request(epochs=part), self._past) for part in drawn.parts]
        job, audited = self._asked.job, subject.audited
        done = planned.reports(job, self.settings.brokers(job), self._topics)
        spec = programs.read(audited, self.settings)
        parts = [
            planned.planned(
                span, self._past, done, spec, audited.revision, self._gone(span), self._asked.rate
            ) for span in spans
        ]  # fmt: skip
        return planned.summed(parts, "" if drawn is None else str(drawn))

    def _drawn(self, span: Range, share: Fraction, seed: int | None) -> Sample:
        seed = secrets.randbelow(SEEDS) if seed is None else seed
        return ranges.sampled(span, self._kept, share, seed)

    def _audited(self, causes: Callable[[], Causes]) -> Audit:
        """The audit of one part. `causes`: with which the next one begins."""
        audit = self._progress.ended()
        if audit is None:
            audit = self._part()
            self._progress.end(audit, causes(), self._runs)
        self._runs, self._causes = self._progress.before, self._progress.causes
        return audit

    def _part(self) -> Audit:
        started_s = self._clock.monotonic_s()
        begun = self._begun()
        subject, span = begun.subject, begun.subject.span
        self._note(
            f"{self._asked.job}: epochs {span.first_epoch} to {span.last_epoch} of revision "
            f"{span.revision}, from {span.base}, audited with {subject.audited.revision}"
        )
        facts = Facts(
            span.revision, subject.audited.revision, span.first_epoch, span.last_epoch,
            gone=self._gone(span, self._compared_to()),
            environment=begun.environment,
        )  # fmt: skip
        if facts.gone:
            return self._audit(subject, facts, started_s)
        with self._spark() as spark:
            watched, kept = self._watch(spark, subject, subject.audited, span.last_epoch)
            try:
                self._end(kept, watched)
            except PerseidError as error:
                if input_faults.has_changed(error):
                    facts = replace(facts, input_changed=str(error))
                elif input_faults.is_gone(error):
                    facts = replace(facts, gone=str(error))
                else:
                    store = open_store(self.settings.store)
                    bases.refuse_damaged(error, self._asked.job, span, self._kept, store)
                    raise
            else:
                if watched.differs:
                    differs = _first(list(map(_text, watched.unequal[:1])), len(watched.unequal))
                    state = _first(list(map(str, watched.states.unlike)))
                    repeated = self._repeated(spark, subject, watched)
                    facts = replace(facts, differs=differs, state=state, repeated=repeated)
        return self._audit(subject, facts, started_s, watched, kept.run)

    def bisect(self) -> Audit:
        """Like `audit` of the first interval between kept checkpoints that differs (`bisection`).

        Each interval is an audit of its own.
        """
        first, last, checkpoints = self._progress.once("bisection", self._searched)

        def interval(request: Request) -> Audit:
            self._asked = replace(self._asked, request=request)
            return self.audit()

        return Search(
            self._asked.job, first, last, checkpoints, interval, self._note
        ).run()  # fmt: skip

    def _searched(self) -> tuple[int, int, list[int]]:
        span = self.subject().span
        return span.first_epoch, span.last_epoch, list(within(span, self._kept))

    # Before the run -----------------------------------------------------------------------------

    def subject(self, *, whole: bool = False) -> Subject:
        """What the request names; RefusedError if it cannot be audited.

        `whole`: reads all of the token log, not only what the range needs.
        """
        job = self._asked.job
        stored = self._registry.job_entry(job)
        if stored is None:
            known = ", ".join(sorted(self._registry.jobs())) or "none"
            raise RefusedError(f"there is no job {job}; the applied jobs are: {known}")
        entry, plan = stored.value, self._registry.plan(job)
        if plan is None or plan.job_uuid != entry.uuid:
            raise RefusedError(f"{job} has never run, so it has no past; `perseid jobs show {job}`")
        pointers = self._registry.pointers(job)
        span = self._range(entry, plan, pointers, whole=whole)
        recorded = programs.recorded(span.revision, entry, plan, pointers)
        audited = recorded
        if self._asked.revision is not None:
            audited = programs.named(self._asked.revision, job, recorded, self.settings)
        if audited is None:
            raise RefusedError(
                f"the files of revision {span.revision} of {job}, of these epochs, are not known "
                "any more: another one is applied by now; name them with --rev REPO@REV, or write "
                '`audit: {horizon: "7d"}` in job.yaml: from then on they are kept'
            )
        spec = programs.read(audited, self.settings)
        programs.refuse_unusable(audited, self.settings)
        if recorded is not None and audited != recorded:
            before = programs.read(recorded, self.settings)
            programs.refuse_other_partitions(job, span.layout, before, spec)
        return Subject(span, audited, recorded)

    def _begun(self) -> Begun:
        """What the open part is of; after an interruption, that with which it began."""
        begun: Begun | None = self._progress.subject()
        if begun is None:
            subject = self.subject()
            environment = programs.surroundings(subject.audited, self.settings)
            begun = Begun(subject, self._kept, environment)
            self._progress.begin(begun, self._causes)
            return begun
        stored = self._registry.job_entry(self._asked.job)
        entry = None if stored is None else stored.value
        begun.refuse_changed(self._asked.job, entry, self._asked.revision, self.settings)
        self._kept = begun.kept
        return begun

    def _compared_to(self) -> int:
        """The epoch up to which the open part's run was compared before an interruption."""
        held = self._progress.run(self._runs + 1)
        if held is None:
            return 0
        self._note(f"{self._asked.job}: resumes after epoch {held.epoch}")
        return held.epoch

    def _gone(self, span: Range, after: int = 0) -> str:
        tokens = (token for token in span.tokens.values() if token.epoch > after)
        return input_faults.missing(tokens, self._topics)

    def _range(
        self, entry: JobEntry, plan: Plan, pointers: CheckpointPointers | None, *, whole: bool
    ) -> Range:  # fmt: skip
        from perseid.topics.log import KafkaLogReader

        job = self._asked.job
        brokers = self.settings.brokers(job)
        tokens = names.tokens(job), 0
        start, end = self._topics.starts([tokens])[tokens], self._topics.ends([tokens])[tokens]
        kept = pointers.every if pointers and pointers.job_uuid == entry.uuid else ()
        self._kept = kept
        asked, now_ms = self._asked.request, self._clock.wall_ms()
        spec = programs.read(programs.Program(plan.revision, plan.archive), self.settings)
        with closing(KafkaLogReader(brokers)) as logs:
            committed = self._committed(entry, layouts.build(spec, plan.layout), logs)
            self._resolve = partial(
                ranges.resolve, checkpoints=kept, job=job, committed_epoch=committed,
                now_ms=now_ms, horizon_s=spec.audit.horizon_s,
            )  # fmt: skip
            window = None if whole else ranges.window(asked, kept, now_ms)
            if window is not None and window[0] >= start:
                low, high = window
                part = _past(logs, tokens, low, end if high is None else high + 1, trimmed=True)
                with suppress(RefusedError):
                    return self._resolve(asked, part)
            self._past = _past(logs, tokens, start, end, trimmed=start > 0)
        return self._resolve(asked, self._past)

    def _committed(self, entry: JobEntry, layout: Layout, logs: LogReader) -> int:
        """The last epoch that all ledger partitions of the plan's layout have."""
        from perseid.topics.ledger import LedgerReader

        tasks = layout.ledger_tasks
        numbers = [task.ledger for task in tasks if task.ledger is not None]
        if not numbers:
            raise RefusedError(f"{entry.name} has no sinks, so there is no output to compare")
        reader = LedgerReader(logs, self._topics)
        found = reader.last_of(entry.name, entry.uuid, numbers, timeout_s=LOG_S)
        return min(record.epoch if record is not None else 0 for record in found.values())

    # Runs ---------------------------------------------------------------------------------------

    @contextmanager
    def _spark(self) -> Iterator[SparkSession]:
        from perseid.worker.spark.session import open_session

        if self._session is not None:
            yield self._session
            return
        spark = open_session(
            self.settings.master, self.settings.cores, f"perseid-audit-{self._asked.job}",
            self._asked.folder / "spark", None, self.settings.spark,
        )  # fmt: skip
        try:
            yield spark
        finally:
            spark.stop()
        self._progress.forget()  # not earlier: its processes fold state logs

    def _watch(
        self, spark: SparkSession, subject: Subject, program: Program, last: int, *,
        looks: bool = True,
    ) -> tuple[Watched, KeptRun]:  # fmt: skip
        from perseid.topics.ranges import ColumnReader

        self._runs += 1
        brokers, folder = self.settings.brokers(self._asked.job), self._run_folder(self._runs)
        ports = Ports(
            subject.span, self.settings, self._topics, open_store(self.settings.store), self._note,
            ColumnReader(brokers), ColumnReader(brokers), folder / "outputs", folder / "states",
            self._revision(program), self._recorded(subject),
        )  # fmt: skip
        held = self._progress.run(self._runs)
        if held is not None:
            watched: Watched = loaded(held.seen, ports.named)
            if watched.look is not None:
                self._causes = watched.look.causes
        else:
            watched = watching.watched(
                ports, self._asked.job, self._kept, self._asked.tolerances,
                self._causes if looks else None, sinks=self._asked.sinks,
            )  # fmt: skip
        return watched, self._run(spark, subject, program, last, watched, ports.named)

    def _revision(self, program: Program) -> Revision:
        folder = archives(Path(self.settings.state)) / program.archive
        return Revision(programs.read(program, self.settings), folder)

    def _recorded(self, subject: Subject) -> Revision | None:
        return None if subject.recorded is None else self._revision(subject.recorded)

    def _end(self, kept: KeptRun, watched: Watched) -> None:
        """Runs to the end; then the last of the sinks is read."""
        from perseid.topics.ranges import RangeReader

        if kept.ended:
            return
        with ExitStack() as held:
            held.enter_context(closing(watched.ledgers))
            if watched.sinks is not None:
                held.enter_context(closing(watched.sinks))
            kept.run.run()
            if watched.sinks is not None:
                watched.ledgers.read_ahead()
                messages = RangeReader(self.settings.brokers(self._asked.job))
                held.enter_context(closing(messages))
                watched.sinks.finish(self._asked.job, self._asked.mixed, messages)
        kept.end()

    def _run(
        self, spark: SparkSession, subject: Subject, program: Program, last: int,
        watcher: Watched | Again, ports: Mapping[str, object],
    ) -> KeptRun:  # fmt: skip
        """The run of number `_runs`, resumed where it was interrupted."""
        attempt, folder = self._progress.attempt, self._run_folder(self._runs)
        plan = plan_of(self._asked.job, program.archive, subject.span, attempt)
        kept = KeptRun(self._progress, self._runs, watcher, ports)
        kept.run = AuditRun(
            spark, self.settings, plan, last, folder, kept.ran, self._asked.rate
        )  # fmt: skip
        return kept

    def _run_folder(self, number: int) -> Path:
        return self._progress.runs / f"run-{number}"

    def _repeated(self, spark: SparkSession, subject: Subject, watched: Watched) -> str | None:
        """Where two runs of the recorded revision differ; None if its files are gone.

        What it committed counts as one of them, if it makes that again.
        """
        if subject.recorded is None:
            return None
        last, first = watched.controlled_to, watched
        if not subject.own:
            self._note(f"revision {subject.span.revision} runs as a control, up to epoch {last}")
            first, kept = self._watch(spark, subject, subject.recorded, last, looks=False)
            self._end(kept, first)
            if not first.differs:
                return ""
            last = first.controlled_to
        self._note(f"revision {subject.span.revision} runs a second time, up to epoch {last}")
        return _first(self._again(spark, subject, subject.recorded, first, last))

    def _again(
        self, spark: SparkSession, subject: Subject, recorded: Program, first: Watched, last: int
    ) -> list[str]:
        """Where a second run differs from the first one."""
        self._runs += 1
        outputs = self._run_folder(self._runs) / "outputs"
        ports: dict[str, object] = {"first": first, "outputs": outputs}
        held = self._progress.run(self._runs)
        again: Again = Again(first, outputs) if held is None else loaded(held.seen, ports)
        kept = self._run(spark, subject, recorded, last, again, ports)
        if not kept.ended:
            kept.run.run()
            kept.end()
        return again.unsteady

    # After the runs -----------------------------------------------------------------------------

    def _audit(
        self, subject: Subject, facts: Facts, started_s: float, watched: Watched | None = None,
        run: AuditRun | None = None,
    ) -> Audit:  # fmt: skip
        span = subject.span
        if watched is not None:
            facts = watched.facts(facts)
        found, reasons = verdict.judged(facts)
        return Audit(
            job=self._asked.job,
            job_uuid=span.job_uuid,
            revision=span.revision,
            audited=subject.audited.revision,
            first_epoch=span.first_epoch,
            last_epoch=span.last_epoch,
            from_ms=span.from_ms,
            to_ms=span.to_ms,
            base=span.base,
            verdict=found,
            reasons=reasons,
            compared=facts.compared,
            causes=self._causes.found(),
            states=facts.states,
            records_in=run.records_in if run is not None else 0,
            epochs=run.epochs if run is not None else 0,
            seconds=round(self._clock.monotonic_s() - started_s, 3),
            time_ms=self._clock.wall_ms(),
            version=this_build().version,
            environment=dict(facts.environment),
            recorded=dict(facts.recorded),
            archive=subject.audited.archive,
        )


def _past(
    logs: LogReader, tokens: Partition, start: int, end: int, *, trimmed: bool
) -> Past | None:  # fmt: skip
    entries = logs.read_range(*tokens, start, end, timeout_s=LOG_S)
    records = ((e.offset, codec.decode_token(tokens[0], e.offset, e.value)) for e in entries)
    return ranges.past(records, trimmed=trimmed)


def _text(one: Unequal) -> str:
    return f"{one}: {shown(one.made)} now, and {shown(one.committed)} committed"


def _first(places: Sequence[str], count: int | None = None) -> str:
    """The first place of `count`, for users; "" of none."""
    if not places:
        return ""
    more = (len(places) if count is None else count) - 1
    return places[0] + (f" (and {more} more places)" if more else "")
