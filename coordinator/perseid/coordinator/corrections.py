"""A job that failed permanently and the revision that corrects it.

No owner is placed before the corrected revision is loaded. What ended the job does not matter: an
operator that raised, SQL, a limit, an epoch timeout, a deleted topic. Then, in this order:

Rewind:  roll back the tokens above the last done epoch, unless a ledger holds one of them. The
         ledgers were claimed when the job was loaded, so none gets one later (`ledger_claims.py`).
Finish:  if a part of the failed epoch is committed, or the epoch has no input that another epoch
         could read, the corrected revision ends it. Operator partitions that have done the epoch
         keep what the old revision computed. So both revisions must have the same tasks and sinks,
         the same upstream fingerprint, and the same state, which the worker checks.
Adopt:   if the old revision ran nothing, or had ended, the corrected one begins as in a switch.
Resume:  if only settings differ (`change.only_loosens`), the corrected one resumes with the old
         one's state, because it would compute the same state.
Switch:  otherwise the old revision runs one more epoch without input, so that a checkpoint keeps
         its state exactly (`switching`). If that fails too, the corrected one finishes it.
Crash loop: while another revision is wanted, one that fails permanently, whose processes die
         repeatedly in one epoch, or that fails repeatedly without progress is treated likewise.
"""

from __future__ import annotations

from dataclasses import replace

from perseid.coordinator import failing, statuses, switching, token_time
from perseid.coordinator.actions import Action, AppendRewind, LoadJob, PutPlan, PutStatus
from perseid.coordinator.job.chain import Tip
from perseid.coordinator.job.positions import first_positions, positions_past
from perseid.coordinator.job.program import Program
from perseid.coordinator.lifecycle import OWNED, Phase
from perseid.coordinator.model import JobState
from perseid.coordinator.token_time import Now
from perseid.errors import ProcessDied, RetryableError
from perseid.jobs.operations.change import incompatibilities, only_loosens
from perseid.records import JobEntry, JobStatus, Plan
from perseid.topics.records import Rewind

Step = tuple[JobState, list[Action]]

FRONT = (
    "sources, SQL, or the code of operators without a key are others, and decide what rows come to "
    "which partition (leave them and the files they are in as they are; a keyed operator that is "
    "in one of these may go to a file of its own)"
)
DEATHS_MAX = 3  # in one epoch before a crash loop is assumed: a host may die once or twice
FAILURES_MAX = 6  # without a done epoch, likewise: a service may be away for a few seconds
_TRANSIENT = (ProcessDied.__name__, RetryableError.__name__)
AGAIN = "again"  # key of an error: the revision that should end the epoch failed in it, too


def is_wanted(entry: JobEntry, plan: Plan | None, status: JobStatus | None) -> bool:
    """Whether a failed job was changed and is wanted again; it may have been stopped in between."""
    return (
        status is not None and status.job_uuid == entry.uuid and status.error is not None
        and status.counter != entry.counter and plan is not None and plan.archive != entry.archive
        and not entry.gate
    )  # fmt: skip


def may_replace_failed(job: JobState) -> bool:
    """Whether the old revision is in a crash loop while another one is wanted."""
    dies = job.health.deaths >= DEATHS_MAX and job.in_flight > 0
    return (dies or job.health.tries >= FAILURES_MAX) and job.wants_switch


def give_way(job: JobState, now: Now) -> Step:
    """Treats a job in a crash loop as one that failed before the user changed it."""
    assert job.plan is not None
    assert job.health.failures is not None
    dies = job.health.deaths >= DEATHS_MAX
    what = (
        f"processes of revision {job.plan.revision} died {job.health.deaths} times" if dies
        else f"revision {job.plan.revision} failed {job.health.tries} times"
    )  # fmt: skip
    text = f"in epoch {job.done + 1} {what}, so revision {job.entry.revision} takes it over"
    last = f"{text}; the last time: {job.health.failures.text}"
    kind = ProcessDied.__name__ if dies else RetryableError.__name__
    error = failing.status_error(job, kind, last, failing.advice(job.name))
    error = {**error, AGAIN: is_under_way(job)}
    return _as_failed_before(job.with_events(text), now, error, text)


def fail(job: JobState, now: Now, kind: str, text: str, next_step: str = "") -> Step:
    """Fails the job permanently, unless another revision is wanted by now."""
    if not job.wants_switch:
        return failing.permanent(job, now, kind, text, next_step)
    next_step = next_step or failing.advice(job.name, kind, text)
    error = failing.status_error(job, kind, text, next_step)
    error = {**error, AGAIN: is_under_way(job)}
    why = f"revision {job.plan.revision if job.plan else ''} failed: {kind}"
    return _as_failed_before(job.with_events(why), now, error, why)


def _as_failed_before(job: JobState, now: Now, error: dict[str, object], why: str) -> Step:
    """Loads the job again as one that had failed when its entry changed."""
    actions: list[Action] = []
    status = replace(
        statuses.status_of(job, now.wall_ms), state="failed", error=error,
        counter=job.entry.counter - 1,  # the failure belongs to an earlier entry
    )  # fmt: skip
    actions.append(PutStatus(job.name, status))
    if job.phase in OWNED:  # its fragment may still run the epoch
        job, disowned = failing.disown(job, why)
        actions += disowned
    job = replace(
        job, health=job.health.with_error(error).written(status),
        switch=job.switch.to_rewind(job.done),
    )  # fmt: skip
    job = job.move(Phase.LOADING, now, why)
    return job, [*actions, LoadJob(job.name, job.entry)]


def is_under_way(job: JobState) -> bool:
    """Whether the failed revision only has to end its work before another one takes over."""
    last = job.chain.last_token
    ends = job.health.error is not None or (last is not None and last.final)
    return ends and job.wants_switch


def correct(job: JobState, coordinator_epoch: int, now: Now) -> Step:
    """One step from the failure to the corrected revision; the rewind is over at the end."""
    target = _rewind_target(job)
    if target is None:
        return _take_over(job, now)
    if job.ownership.ledger_highest > target.epoch:
        return _finish(job, now, "a part of it is committed")
    failed = job.chain.issued(target.epoch + 1)
    kept = replace(job, chain=job.chain.up_to(target.epoch))
    if not (failed is not None and failed.token.records) and not switching.may_adopt(kept):
        return _finish(job, now, "it has no input that another epoch could have")
    reason = f"revision {job.entry.revision} computes epoch {target.epoch + 1} again"
    record = Rewind(coordinator_epoch, job.entry.uuid, target.epoch, target.offset, reason)
    return replace(job, chain=job.chain.appends()), [AppendRewind(job.name, record)]


def _rewind_target(job: JobState) -> Tip | None:
    """The tip after a rewind to the last done epoch; None if there is nothing to roll back."""
    if job.chain.tip.epoch <= job.done:
        return None
    issued = job.chain.issued(job.done)
    return Tip(job.done, issued.offset) if issued is not None else job.chain.base


def _take_over(job: JobState, now: Now) -> Step:
    """Nothing is in flight: decides which revision resumes after the last done epoch."""
    if not job.wants_switch:
        return _rewind_over(job), []
    target = job.switch.target_of(job.entry.archive)
    if target is None:
        return switching.load(job, now)
    if switching.may_adopt(job):
        return switching.adopt_program(_rewind_over(job), target, now)
    if job.health.error is not None and job.health.error.get(AGAIN):
        return _finish(job, now, "the revision before cannot end without input either")
    if job.program is not None and _can_continue(job.program, target):
        reason = f"revision {target.revision} resumes after epoch {job.done}: only settings differ"
        return _change_revision(job, now, target, reason)
    return _rewind_over(job), []


def _rewind_over(job: JobState) -> JobState:
    return replace(job, switch=job.switch.rewind_over())


def _can_continue(old: Program, new: Program) -> bool:
    """Whether the new revision computes the same for every epoch that the old one ended."""
    return old.code == new.code != "" and only_loosens(old.spec, new.spec)


def _finish(job: JobState, now: Now, why: str) -> Step:
    """One step towards the corrected revision, which ends the failed epoch."""
    target, plan = job.switch.target_of(job.entry.archive), job.plan
    if job.switch.rejected == job.entry.archive:
        return _cannot_finish(job, now, why, [job.health.events[-1].partition(": ")[2]])
    if target is None:
        return switching.load(job, now)
    if plan is None or job.program is None:
        return job, []
    found = incompatibilities(job.program.spec, target.spec)
    if job.program.upstream_fingerprint != target.upstream_fingerprint:
        found.append(FRONT)
    if found:
        return _cannot_finish(job, now, why, found)
    return _change_revision(
        job, now, target, f"revision {target.revision} ends epoch {job.done + 1}: {why}"
    )


def _change_revision(job: JobState, now: Now, target: Program, reason: str) -> Step:
    """Names `target` in the plan; it resumes with the state logs of the previous revision."""
    assert job.plan is not None
    plan = replace(
        job.plan.handed_to(None, job.ownership.next_generation),
        revision=target.revision, archive=target.archive, reason=reason,
    )  # fmt: skip
    job = replace(
        job.with_program(target, plan.layout), ownership=job.ownership.planned(plan),
        switch=job.switch.completed().rewind_over(),
    ).with_events(reason)  # fmt: skip
    job, actions = failing.forgotten(job, now)
    return job, [PutPlan(job.name, plan), *actions]


def _cannot_finish(job: JobState, now: Now, why: str, reasons: list[str]) -> Step:
    before = job.plan.revision if job.plan is not None else ""
    text = (
        f"epoch {job.done + 1} failed and {why}, so the changed revision has to end it, and "
        f"revision {job.entry.revision} cannot: {'; '.join(reasons)}"
    )
    if job.health.error is not None and job.health.error["kind"] in _TRANSIENT:
        # A host may be the cause, so the old revision is retried; the other one may follow it.
        switch = job.switch.dropped().rewind_over()
        return replace(job.with_events(text), switch=switch), []
    advice = (
        f"apply a revision first that only corrects keyed operators or settings of {before}, and "
        f"this one when it runs; or `perseid jobs start {job.name} --from scratch`"
    )
    job = replace(job, switch=job.switch.dropped())
    return failing.permanent(job, now, "RefusedError", text, advice)


def rewound(job: JobState, record: Rewind, now: Now) -> JobState:
    """The job after its Rewind is in the log."""
    kept, moved = job.chain.up_to(record.epoch).tokens, job.inputs.positions
    if job.program is not None and job.chain.tokens:
        spec = job.program.spec
        # A source may first be named by a token that is rolled back.
        moved = first_positions(spec, (issued.token for issued in job.chain.tokens))
        moved = positions_past(spec, moved, (issued.token for issued in kept))
    collecting, checkpointing = job.checkpointing.collecting, job.checkpointing
    if collecting is not None and collecting.epoch > record.epoch:
        checkpointing = checkpointing.dropped()
    # The rolled-back tokens lose their times too: their leader's clocks may have been ahead.
    time = token_time.resumed(kept[-1] if kept else None, job.chain.log_time, now)
    return replace(
        job, chain=job.chain.rewound(record.epoch, time), checkpointing=checkpointing,
        inputs=job.inputs.rewound(moved, record.epoch),
        ownership=job.ownership.rewound(record.epoch),
    ).with_events(f"epochs above {record.epoch} taken back")  # fmt: skip
