"""/metrics: the leader's state as Prometheus families. Pure: turns a Look into samples.

Every family is one entry of FAMILIES, and its row in API.md is the same (a unit test compares
them). A coordinator that stands by has one sample, `perseid_leader 0`. What is not known yet, as
the lag of a job that is being loaded, has no sample instead of a wrong one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from perseid.coordinator import buffer_bound, stalled, statuses, view
from perseid.coordinator.lifecycle import Phase
from perseid.coordinator.model import JobState
from perseid.coordinator.totals import EPOCH_BOUNDS_S
from perseid.coordinator.view import Look
from perseid.records import Assignment
from perseid.records.audits import AuditRequest

PHASES = ("waiting", "restoring", "rescaling", "running", "stopping", "stopped", "failed")
Sample = tuple[tuple[str, ...], float]  # the labels' values, and the value


@dataclass(frozen=True, slots=True)
class Family:
    """One metric. `kind`: gauge, counter or histogram."""

    name: str
    kind: str
    labels: tuple[str, ...]
    text: str
    collect: Callable[[Look], Metric]


def registry(look: Callable[[], Look | None]) -> CollectorRegistry:
    """A separate registry, without the process's metrics, that calls `look` at each scrape."""
    made = CollectorRegistry(auto_describe=False)
    made.register(_Looking(look))
    return made


class _Looking(Collector):
    def __init__(self, look: Callable[[], Look | None]) -> None:
        self._look = look

    def collect(self) -> Iterator[Metric]:
        look = self._look()
        if look is None:
            yield GaugeMetricFamily(LEADER.name, LEADER.text, value=0)
            return
        for family in FAMILIES:
            yield family.collect(look)


# -- families ------------------------------------------------------------------------------------


def _gauge(
    name: str, text: str, labels: tuple[str, ...], samples: Callable[[Look], Iterable[Sample]]
) -> Family:
    def collect(look: Look) -> Metric:
        metric = GaugeMetricFamily(name, text, labels=labels)
        for values, value in samples(look):
            metric.add_metric(values, value)
        return metric

    return Family(name, "gauge", labels, text, collect)


def _of_leader(name: str, text: str, value: Callable[[Look], float]) -> Family:
    return _gauge(name, text, (), lambda look: [((), value(look))])


def _total_of_leader(name: str, text: str, value: Callable[[Look], int]) -> Family:
    def collect(look: Look) -> Metric:
        return CounterMetricFamily(name, text, value=value(look))

    return Family(name, "counter", (), text, collect)


def _of_job(name: str, text: str, value: Callable[[JobState, Look], float | None]) -> Family:
    return _gauge(name, text, ("job",), lambda look: _by_job(look, value))


def _total(name: str, text: str, value: Callable[[JobState], int]) -> Family:
    return _counted(name, text, lambda job, _: value(job))


def _counted(name: str, text: str, value: Callable[[JobState, Look], int]) -> Family:
    def collect(look: Look) -> Metric:
        metric = CounterMetricFamily(name, text, labels=("job",))
        for values, found in _by_job(look, value):
            metric.add_metric(values, found)
        return metric

    return Family(name, "counter", ("job",), text, collect)


def _by_job(look: Look, value: Callable[[JobState, Look], float | None]) -> Iterator[Sample]:
    for name, job in sorted(look.state.jobs.items()):
        found = value(job, look)
        if found is not None:
            yield (name,), found


def _loaded(value: Callable[[JobState], float | None]) -> Callable[[JobState, Look], float | None]:
    """The value, or None while the job is being loaded."""
    return lambda job, _: None if job.phase is Phase.LOADING else value(job)


def _phases(look: Look) -> Iterator[Sample]:
    for name, job in sorted(look.state.jobs.items()):
        present = statuses.name_of(job)
        yield from (((name, phase), float(phase == present)) for phase in PHASES)


def _done_epochs(look: Look) -> Iterator[Sample]:
    for name, job in sorted(look.state.jobs.items()):
        done = view.done_epochs(job)
        if len(done) > 1:
            yield from (((name, fragment), epoch) for fragment, epoch in done.items())


def _replica_epochs(look: Look) -> Iterator[Sample]:
    for name, job, own in _replicas(look):
        yield (name, own.fragment), job.standby.of(own.fragment).done


def _replica_lags(look: Look) -> Iterator[Sample]:
    for name, job, own in _replicas(look):
        done = view.done_epochs(job)[own.fragment]
        yield (name, own.fragment), max(0, done - job.standby.of(own.fragment).done)


def _replicas(look: Look) -> Iterator[tuple[str, JobState, Assignment]]:
    for name, job in sorted(look.state.jobs.items()):
        if job.plan is not None and job.phase is not Phase.LOADING:
            yield from ((name, job, own) for own in job.plan.replicas)


def _buffer_bytes(look: Look) -> Iterator[Sample]:
    for name, job in sorted(look.state.jobs.items()):
        if job.phase is not Phase.LOADING:
            yield from (((name, reader), size) for reader, size in buffer_bound.held(job).items())


def _operator_bytes(look: Look) -> Iterator[Sample]:
    for name, job in sorted(look.state.jobs.items()):
        yield from (((name, s.operator), s.bytes) for s in job.totals.states)


def _epoch_durations(look: Look) -> Metric:
    metric = HistogramMetricFamily(EPOCH_DURATION, EPOCH_TEXT, labels=("job",))
    bounds = [*map(str, EPOCH_BOUNDS_S), "+Inf"]
    for name, job in sorted(look.state.jobs.items()):
        buckets = list(zip(bounds, accumulate(job.totals.epochs), strict=True))
        metric.add_metric((name,), buckets=buckets, sum_value=job.totals.epochs_s)
    return metric


def _audits_ended(look: Look) -> Iterator[Sample]:
    ended = [(a.job, a.result.verdict or a.state) for a in look.audits if a.result is not None]
    yield from ((labels, count) for labels, count in sorted(Counter(ended).items()))


def _audited_epochs(look: Look) -> Iterator[Sample]:
    ended = [(a.job, a.result.epochs) for a in look.audits if a.result is not None]
    for job in sorted({job for job, _ in ended}):
        yield (job,), sum(epochs for of, epochs in ended if of == job)


def _audit_open_s(look: Look) -> Iterator[Sample]:
    for job in sorted({audit.job for audit in look.audits}):
        begun = [a.requested_ms for a in look.audits if a.is_open and a.job == job]
        yield (job,), max(0.0, (look.now.wall_ms - min(begun)) / 1000) if begun else 0.0


def _last_verdicts(look: Look) -> Iterator[AuditRequest]:
    """By job, the audit with a verdict that ended last."""
    done = [audit for audit in look.audits if audit.state == "done"]
    for job in sorted({audit.job for audit in done}):
        yield max((a for a in done if a.job == job), key=lambda audit: audit.ended_ms or 0)


def _last_equal(look: Look) -> Iterator[Sample]:
    for audit in _last_verdicts(look):
        yield (audit.job,), float(audit.result is not None and audit.result.verdict == "equal")


def _last_verdict_age_s(look: Look) -> Iterator[Sample]:
    for audit in _last_verdicts(look):
        yield (audit.job,), max(0.0, (look.now.wall_ms - (audit.ended_ms or 0)) / 1000)


def _watermark_s(job: JobState) -> float | None:
    token = job.chain.last_token
    return token.watermark_ms / 1000 if token and token.watermark_ms is not None else None


LEADER = _of_leader("perseid_leader", "1 if this coordinator leads, 0 while it stands by",
                    lambda _: 1)  # fmt: skip
EPOCH_DURATION = "perseid_job_epoch_duration_seconds"
EPOCH_TEXT = "From the token to the last commit of an epoch, as its worker measured it"

FAMILIES: tuple[Family, ...] = (
    LEADER,
    _of_leader(
        "perseid_coordinator_epoch", "The fence of the leader's writes; rises with each leader",
        lambda look: look.state.epoch,
    ),
    _of_leader("perseid_workers", "Live workers", lambda look: len(look.state.workers)),
    _total_of_leader(
        "perseid_coordinator_violations_total",
        "Broken invariants of the coordinator: each is a defect of perseid",
        lambda look: look.violations,
    ),
    _total_of_leader(
        "perseid_coordinator_decisions_unrecorded_total",
        "Decisions of the leader that are in no file, because a disk was full or slow",
        lambda look: look.unrecorded,
    ),
    _gauge(
        "perseid_job_phase", "1 for the phase that the job is in, 0 for the others",
        ("job", "phase"), _phases,
    ),
    _of_job("perseid_job_epoch", "The newest epoch that has a token",
            _loaded(lambda job: job.chain.tip.epoch)),
    _of_job("perseid_job_committed_epoch", "The newest epoch that is committed",
            _loaded(lambda job: job.done)),
    _gauge(
        "perseid_fragment_done_epoch", "The newest epoch that a fragment of a spread job has done",
        ("job", "fragment"), _done_epochs,
    ),
    _gauge("perseid_replica_epoch", "The newest epoch that a replica has run",
           ("job", "fragment"), _replica_epochs),
    _gauge(
        "perseid_replica_lag_epochs", "Epochs that a primary has done and its replica has not",
        ("job", "fragment"), _replica_lags,
    ),
    _of_job(
        "perseid_job_gate_equal_epochs",
        "Epochs of an applied revision that were equal to those of the running one, while its gate "
        "is open",
        _loaded(lambda job: job.gate_equal if job.wants_gate and not job.gate_refused else None),
    ),
    _of_job("perseid_job_gate_refused",
            "1 while the applied revision is refused by its gate, 0 while its gate is open",
            _loaded(lambda job: bool(job.gate_refused) if job.wants_gate else None)),
    _of_job(
        "perseid_job_protected",
        "1 while a replica takes over when a worker dies, 0 while none would; for jobs with "
        "replicas",
        lambda job, _: view.protection(job)["protected"],
    ),
    _of_job("perseid_job_lag_records", "Records in the sources that no committed epoch has",
            lambda job, _: view.lag(job)),
    _of_job("perseid_job_watermark_timestamp_seconds", "The watermark in the newest token",
            _loaded(_watermark_s)),
    _total("perseid_job_rows_in_total", "Records read by committed epochs",
           lambda job: job.totals.rows_in),
    _total("perseid_job_bytes_in_total", "Bytes of the values of these records",
           lambda job: job.totals.bytes_in),
    _total("perseid_job_rows_out_total", "Records written by committed epochs",
           lambda job: job.totals.rows_out),
    _total("perseid_job_dead_letters_total", "Records that went to the dead-letter topic",
           lambda job: job.totals.dead_letters),
    _total("perseid_job_late_records_total", "Records below their epoch's watermark",
           lambda job: job.inputs.late),
    Family(EPOCH_DURATION, "histogram", ("job",), EPOCH_TEXT, _epoch_durations),
    _of_job("perseid_job_state_bytes", "State of all operators",
            _loaded(lambda job: job.checkpointing.state_bytes)),
    _of_job("perseid_job_state_rows", "Rows in the state of all operators",
            lambda job, _: job.totals.state_rows),
    _gauge("perseid_operator_state_bytes", "State of one operator over its partitions",
           ("job", "operator"), _operator_bytes),
    _gauge(
        "perseid_buffer_bytes",
        "What the buffer topic of an operator holds that a restore may need, of a spread job",
        ("job", "operator"), _buffer_bytes,
    ),
    _of_job("perseid_buffer_bytes_max", "The bound of each buffer topic of a spread job",
            _loaded(buffer_bound.bytes_max)),
    _of_job("perseid_job_checkpoint_epoch", "The epoch of the newest complete checkpoint",
            _loaded(lambda job: job.newest.epoch if job.newest else None)),
    _of_job("perseid_job_checkpoint_age_seconds", "Since the token of the newest checkpoint",
            lambda job, look: view.checkpoint_age_s(job, look.now)),
    _of_job("perseid_job_clock_ahead_seconds",
            "The wall clock of the leader's machine less the job's token time",
            lambda job, look: view.clock_ahead_s(job, look.now)),
    _of_job("perseid_job_checkpoint_bytes", "What the newest checkpoint has written",
            _loaded(lambda job: job.newest.bytes if job.newest else None)),
    _of_job("perseid_job_checkpoint_duration_seconds",
            "From the newest checkpoint's token until it was complete",
            lambda job, _: job.totals.checkpoint_s),
    _total("perseid_job_checkpoints_total", "Complete checkpoints",
           lambda job: job.totals.checkpoints),
    _total("perseid_job_checkpoints_aborted_total", "Checkpoints that were begun and aborted",
           lambda job: job.totals.checkpoints_aborted),
    _of_job("perseid_job_generation", "Rises with each owner, so old ones can be fenced",
            _loaded(lambda job: job.ownership.generation)),
    _total("perseid_job_restarts_total",
           "Times the job was placed again, after a failure, a worker that left, or by a rebalance",
           lambda job: job.totals.restarts),
    _total("perseid_job_takeovers_total", "Restarts on another worker than before",
           lambda job: job.totals.takeovers),
    _of_job("perseid_job_failures", "Transient failures in a row; 0 once an epoch is done",
            _loaded(lambda job: job.health.failures.count if job.health.failures else 0)),
    _of_job("perseid_job_failing_seconds",
            "For how long it has failed again and again without an epoch done; 0 else",
            lambda job, look: view.failing_s(job, look.now)),
    _of_job("perseid_job_stalled_input_seconds",
            "For how long an open transaction has held a source partition back; 0 else",
            lambda job, look: stalled.longest_s(job.inputs, look.now)),
    _counted("perseid_job_offset_mirror_failures_total",
             "Times the offsets of the job's consumer group could not be written",
             lambda job, look: look.unmirrored.get(job.name, 0)),
    _of_leader("perseid_audit_running", "Audits that workers run",
               lambda look: sum(audit.state == "running" for audit in look.audits)),
    _of_leader("perseid_audit_waiting", "Audits that wait for a worker",
               lambda look: sum(audit.state == "waiting" for audit in look.audits)),
    _gauge("perseid_audit_ended",
           "Audits that have ended and are kept, by verdict, or failed, refused or canceled",
           ("job", "result"), _audits_ended),
    _gauge("perseid_audit_epochs", "Epochs that these have run again", ("job",), _audited_epochs),
    _gauge("perseid_audit_last_equal", "1 if the last verdict is equal, 0 for another one",
           ("job",), _last_equal),
    _gauge("perseid_audit_last_age_seconds", "Since the last verdict", ("job",),
           _last_verdict_age_s),
    _gauge("perseid_audit_open_seconds",
           "For how long the oldest open audit waits or runs; 0 without one", ("job",),
           _audit_open_s),
)  # fmt: skip
