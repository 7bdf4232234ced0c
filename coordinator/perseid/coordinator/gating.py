"""Compares the revision that the user wants with the running one before the job switches to it.

The goal is the entry's `gate`, the state is the plan's: who runs the new revision, muted, and why
it was refused. It runs on a worker without a copy of the job, since one process has one revision's
code, begins at a checkpoint of the running revision, and ends with the first plan that has the
wanted revision, or none.

Once enough epochs were equal the job wants the switch (`JobState.wants_switch`), which is an
ordinary one. Another result, or code that fails, refuses the revision: nothing else of the job
changes. Another apply or start (a new counter of the entry) replaces the gate.

Epochs that were equal count on the next worker too, since each was compared once, and an equal
result stays one. After a failure or a death, of which the revision may be the cause, they do not: a
revision that ends its worker every few epochs would pass in parts.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from perseid.coordinator import failing, placement
from perseid.coordinator.actions import Action, PutPlan
from perseid.coordinator.job.ownership import Condition
from perseid.coordinator.job.standby import Standby
from perseid.coordinator.lifecycle import Phase
from perseid.coordinator.model import ClusterState, JobState
from perseid.coordinator.token_time import Now
from perseid.errors import (
    DamagedFile,
    Diverged,
    LogTruncated,
    ProcessDied,
    ReplayDataLost,
    UnexpectedError,
)
from perseid.errors.headline import headline
from perseid.errors.texts import TEXT_MAX, cut
from perseid.records import WHOLE, Assignment, Gate, Plan
from perseid.topics.records import EpochDone, EpochsEqual, FragmentState

FAILURES_MAX = failing.TRIES_MAX  # in a row, of errors that are perhaps of its code
_OF_CODE = {kind.__name__ for kind in (ProcessDied, UnexpectedError)}
_OF_LOSSES = {  # permanent for a primary; a gate begins again at a newer checkpoint
    kind.__name__ for kind in (DamagedFile, LogTruncated, ReplayDataLost)
}
NO_WORKER = "it needs a worker that has no copy of the job, and none is live"
NO_CHECKPOINT = "it begins at the next checkpoint"

Step = tuple[JobState, list[Action]]


def step(state: ClusterState, job: JobState, now: Now) -> Step:
    """One step towards a gate that runs, or that runs no more."""
    plan = job.plan
    if plan is None or job.entry.desired != "running":
        return job, []
    if not job.wants_gate:
        return _ended(job, plan) if plan.gate is not None else (job, [])
    if job.gate is None and plan.gate is not None:
        return _ended(job, plan)
    run = runs(job)
    if run is not None and run.owner not in state.workers and _lives(job, run):
        ended = job.gating.ended(WHOLE, f"worker {run.owner} is gone")
        job = replace(job, gating=_uncounted(job, ended))
    if job.gate_refused or job.gate_passed or (run is not None and _stays(state, job, run)):
        return job, []
    return _placed(state, job, plan, now)


def _placed(state: ClusterState, job: JobState, plan: Plan, now: Now) -> Step:
    why = _lacking(job, plan)
    chosen = placement.for_gate(state, plan) if not why else None
    if chosen is None:
        return _waits(job, why or NO_WORKER), []
    gating = job.gating if job.gate is not None else Standby()  # failures of another revision
    known = gating.of(WHOLE)
    if now.monotonic_s < known.retry_s:
        return job, []
    made = replace(
        plan.gated_by(job.entry, chosen, job.ownership.next_generation, known.equal),
        checkpoints=job.kept, reason=f"gate of revision {job.entry.revision} on {chosen}",
    )  # fmt: skip
    assert made.gated is not None
    job = replace(
        job, gating=gating.placed(made.gated, equal=known.equal),
        ownership=job.ownership.planned(made),
    ).with_events(f"gate: revision {job.entry.revision} runs muted on {chosen}{_may(job)}")
    return job, [PutPlan(job.name, made)]


def _may(job: JobState) -> str:
    causes = len(job.entry.approved)
    return f"; {causes} kinds of differences are approved" if causes else ""


def _waits(job: JobState, why: str) -> JobState:
    if job.gating.of(WHOLE).why == why:
        return job
    job = replace(job, gating=job.gating.ended(WHOLE, why))
    return job.with_events(f"gate: revision {job.entry.revision} waits: {why}")


def _lacking(job: JobState, plan: Plan) -> str:
    """Why it may not be placed now; empty if it may."""
    if job.switch.rewind_to is not None or job.phase is not Phase.RUNNING:
        return "the job does not run"
    newest = job.newest
    if newest is None or newest.epoch <= plan.base_epoch or newest.layout != plan.layout:
        return NO_CHECKPOINT
    return ""


def _ended(job: JobState, plan: Plan) -> Step:
    """No gate runs from now on, and none was refused."""
    number = job.ownership.next_generation
    made = replace(plan, generation=number, gate=None, reason="its gate has ended")
    return replace(job, ownership=job.ownership.planned(made)), [PutPlan(job.name, made)]


def runs(job: JobState) -> Assignment | None:
    """Who runs the wanted revision now, if any worker may."""
    return job.gate.run if job.gate is not None else None


def _stays(state: ClusterState, job: JobState, run: Assignment) -> bool:
    info = state.workers.get(run.owner or "")
    return info is not None and not info.leaving and _lives(job, run)


def _lives(job: JobState, run: Assignment) -> bool:
    return job.gating.condition(run) is not Condition.WAITING


def _uncounted(job: JobState, gating: Standby) -> Standby:
    """It is compared from 0 on, unless enough epochs were equal before."""
    return gating if job.gate_passed else gating.uncounted(WHOLE)


def loaded(job: JobState, plan: Plan | None, live: Collection[str]) -> Standby:
    """What is known of the gate of a plan that was read. `live`: the incarnations of workers."""
    if plan is None or plan.gate is None or plan.gated is None:
        return job.gating
    known = job.gating.loaded([plan.gated], live)
    return known.equal(WHOLE, plan.gate.equal) if plan.gated.owner in live else known


# -- reports -------------------------------------------------------------------------------------


def is_of(job: JobState, generation: int) -> bool:
    """Whether a report under that generation is the gate's."""
    run = runs(job)
    return run is not None and run.generation == generation


def reported(job: JobState, record: EpochDone | EpochsEqual | FragmentState, now: Now) -> Step:
    """The job after a report of its gate; one that has ended is over."""
    run = runs(job)
    if run is None or run.generation != record.generation or not _lives(job, run):
        return job, []
    if isinstance(record, EpochsEqual):
        return _counted(job, record.epochs), []
    gating = job.gating
    running = gating.runs(WHOLE, min(record.epoch, job.chain.tip.epoch), job.done)
    if isinstance(record, EpochDone):
        return replace(job, gating=running), []
    events = [f"gate: {event}" for event in record.events]
    job = job.with_events(*(e for e in events if e not in job.health.events))
    if record.state == "failed":
        return _failed(job, record, now)
    if record.state == "stopped":
        return replace(job, gating=gating.ended(WHOLE, f"worker {run.owner} leaves")), []
    return replace(job, gating=running) if record.state in ("running", "repeated") else job, []


def _counted(job: JobState, epochs: int) -> JobState:
    before, earlier = job.gate_passed, job.gate.equal if job.gate is not None else 0
    job = replace(job, gating=job.gating.equal(WHOLE, earlier + epochs))
    if before or not job.gate_passed:
        return job
    wanted = job.entry.gate
    text = f"gate: {wanted} of {wanted} epochs equal, the job switches"
    return job if text in job.health.events[-1:] else job.with_events(text)


def _failed(job: JobState, record: FragmentState, now: Now) -> Step:
    text = record.error or "it failed without a reason"
    kind = record.error_kind
    if kind == Diverged.__name__:
        return _refused(job, text)
    failed = job.gating.failed(WHOLE, job.done, now.monotonic_s, text)
    job = replace(job, gating=_uncounted(job, failed))
    again = job.gating.of(WHOLE).failures >= FAILURES_MAX
    if (record.permanent and kind not in _OF_LOSSES) or (kind in _OF_CODE and again):
        return _refused(
            job,
            f"the revision fails where the running one does not: {text}. The job stays as it is: "
            "correct the revision and apply it again with `--gate audit`",
        )
    return job.with_events(f"gate: revision {job.entry.revision} failed: {headline(text)}"), []


def _refused(job: JobState, text: str) -> Step:
    """The job stays on its revision: the plan has the reason."""
    assert job.plan is not None
    made = replace(
        job.plan, generation=job.ownership.next_generation,
        gate=Gate(job.entry.counter, None, cut(text, TEXT_MAX)),
        reason=f"the gate refuses revision {job.entry.revision}",
    )  # fmt: skip
    job = replace(job, ownership=job.ownership.planned(made))
    return job.with_events(f"gate refused: {headline(text)}"), [PutPlan(job.name, made)]


# -- what users see ------------------------------------------------------------------------------


def shown(job: JobState) -> dict[str, Any] | None:
    """The gate of the wanted revision; None without one, or once the job has switched."""
    if not job.wants_gate:
        return None
    run, refused = runs(job), job.gate_refused
    known = job.gating.of(WHOLE)
    lives = run is not None and _lives(job, run)
    state = (
        "refused" if refused else "switching" if job.gate_passed
        else "comparing" if lives else "waiting"
    )  # fmt: skip
    return {
        "revision": job.entry.revision, "state": state, "epochs": job.entry.gate,
        "equal": min(job.gate_equal, job.entry.gate),
        "worker": run.owner if run is not None else None,
        "reason": refused or ("" if lives else known.why) or None,
    }  # fmt: skip
