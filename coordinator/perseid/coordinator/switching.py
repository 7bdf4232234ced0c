"""From what runs to what the user wants: stop, change of revision, removal, rewind.

What is wanted is the difference between the job's entry and its plan, so it survives any crash.

Stop:    a final token, with a checkpoint if asked for; when it is done the plan loses its owner.
Switch:  1. no more input is named under the old revision, and the new program is loaded;
         2. a final token without input asks for a checkpoint under the old revision;
         3. when that checkpoint is complete, a plan with a higher generation names the new one.
         The layout rises in step 3 only, so every token runs in the layout that it names.
Rescale: a switch to another number of operator partitions. All that the old ones made is committed
         and in that checkpoint, so the new owner deals their state out and goes on behind it.
Rewind:  a job that failed in an epoch and was changed takes the tokens above the last done epoch
         back, unless a ledger holds one of them: they were claimed when the job was loaded, so none
         gets one later (`ledger_claims.py`). Then it switches as above: the old revision runs an
         epoch without input, so its state is kept exactly and the bad input is the new one's.
Finish:  where a part of the failed epoch is committed, or it has no input that could be given to
         another, the changed revision ends it: the operator partitions that have done it keep what
         the old one computed. So both must have the same tasks and sinks, send the same rows to
         them (`Program.front`), and have the same state, which the worker looks at.
Way:     where processes die in an epoch again and again (native code that crashes, memory), no
         error ends the job, so no other revision would ever have the epoch. Once one is wanted the
         job is loaded anew, as one that failed and was changed: Rewind or Finish.
"""

from __future__ import annotations

from dataclasses import replace

from perseid.coordinator import checkpoints, failing, issue, statuses
from perseid.coordinator.actions import (
    Action,
    AppendRewind,
    AppendToken,
    LoadJob,
    LoadProgram,
    PutPlan,
    PutStatus,
)
from perseid.coordinator.lifecycle import OWNED, Phase
from perseid.coordinator.model import (
    Issued,
    JobState,
    Now,
    Program,
    Tip,
    first_positions,
    issued_token,
    positions_behind,
)
from perseid.errors import ProcessDied
from perseid.jobs.change import apart, needs_new_layout, resized
from perseid.jobs.layout import build
from perseid.records import JobEntry, JobStatus, Plan
from perseid.topics.records import Rewind

Step = tuple[JobState, list[Action]]

FRONT = (
    "sources, SQL, or the code of operators without a key are others, and say which rows come to "
    "which partition (leave them and the files they are in as they are; a keyed operator that is "
    "in one of these may go to a file of its own)"
)
DEATHS_MAX = 3  # in one epoch, before the old revision gives way: a machine may end once or twice
FINAL_AGAIN_S = 2.0  # a store that is away fails each checkpoint at once: not too many tokens


def wants_stop(job: JobState) -> bool:
    return job.entry.desired == "stopped"


def wants_switch(job: JobState) -> bool:
    plan = job.plan
    return (
        job.entry.desired == "running" and plan is not None
        and job.entry.archive not in (plan.archive, job.rejected)
    )  # fmt: skip


def wants_rewind(entry: JobEntry, plan: Plan | None, status: JobStatus | None) -> bool:
    """Whether a job that failed was changed and is asked for again, perhaps stopped in between."""
    return (
        status is not None and status.job_uuid == entry.uuid and status.error is not None
        and status.counter != entry.counter and plan is not None and plan.archive != entry.archive
    )  # fmt: skip


def stop(job: JobState, coordinator_epoch: int, now: Now) -> Step:
    """One step towards a stopped job."""
    settled = not job.tokens or _settled(job, checkpoint=job.entry.stop_checkpoint)
    if settled or (job.phase is not Phase.RUNNING and not job.entry.stop_checkpoint):
        return finish_stop(job, now)
    return _final(job, coordinator_epoch, now, checkpoint=job.entry.stop_checkpoint)


def finish_stop(job: JobState, now: Now) -> Step:
    actions: list[Action] = []
    if failing.has_owner(job):
        job, actions = failing.disown(job, "stopped")
    return replace(job, fragment="").move(Phase.STOPPED, now, "as the user wants"), actions


def switch(job: JobState, coordinator_epoch: int, now: Now) -> Step:
    """One step towards the entry's revision."""
    target = job.next_program
    if target is None or target.archive != job.entry.archive:
        return _load(job, now)
    if _may_adopt(job):
        return _adopt_program(job, target, now)
    return _final(job, coordinator_epoch, now, checkpoint=True)


def gives_way(job: JobState) -> bool:
    """Whether the old revision's processes die in its epoch, and another one waits for it."""
    return job.deaths >= DEATHS_MAX and job.in_flight > 0 and wants_switch(job)


def give_way(job: JobState, now: Now) -> Step:
    """Takes it for failed before the user changed it, and loads it as such."""
    plan, failures = job.plan, job.failures
    assert plan is not None and failures is not None
    text = (
        f"in epoch {job.done + 1} processes of revision {plan.revision} died {job.deaths} times, "
        f"so revision {job.entry.revision} takes it over"
    )
    last = f"{text}; the last time: {failures.text}"
    error = failing.told_error(job, ProcessDied.__name__, last, failing.advice(job.name))
    job = replace(job.told(text), error=error, rewind_to=job.done)
    status = replace(
        statuses.status_of(job, now.wall_ms), state="failed", error=error,
        counter=job.entry.counter - 1,  # it was not of the entry of now
    )  # fmt: skip
    job = job.move(Phase.LOADING, now, text)
    return job, [PutStatus(job.name, status), LoadJob(job.name, job.entry)]


def rename_revision(job: JobState) -> Step:
    """Another commit with the same files: the plan only takes its name over."""
    entry, plan = job.entry, job.plan
    if plan is None or plan.archive != entry.archive or plan.revision == entry.revision:
        return job, []
    plan = replace(plan, revision=entry.revision)
    program = replace(job.program, revision=entry.revision) if job.program else None
    return replace(job, plan=plan, program=program), [PutPlan(job.name, plan)]


def rewind_target(job: JobState) -> Tip | None:
    """The tip after a rewind to the last done epoch; None when there is nothing to take back."""
    if job.tip.epoch <= job.done:
        return None
    issued = issued_token(job, job.done)
    return Tip(job.done, issued.offset) if issued is not None else job.base


def rewind(job: JobState, coordinator_epoch: int, now: Now) -> Step:
    """Takes back what a failed job did not finish; has it finished when a part is committed."""
    target = rewind_target(job)
    if target is None:
        return replace(job, rewind_to=None), []
    if job.ledger_highest > target.epoch:
        return _finish(job, now, "a part of it is committed")
    failed = issued_token(job, target.epoch + 1)
    kept = replace(job, tokens=_up_to(job, target.epoch))
    if not (failed is not None and failed.token.records) and not _may_adopt(kept):
        return _finish(job, now, "it has no input that another epoch could have")
    reason = f"revision {job.entry.revision} computes epoch {target.epoch + 1} again"
    record = Rewind(coordinator_epoch, job.entry.uuid, target.epoch, target.offset, reason)
    return replace(job, appending=True), [AppendRewind(job.name, record)]


def _finish(job: JobState, now: Now, why: str) -> Step:
    """One step towards the changed revision, which ends the failed epoch."""
    target, plan = job.next_program, job.plan
    if job.rejected == job.entry.archive:
        return _cannot_finish(job, now, why, [job.events[-1].partition(": ")[2]])
    if target is None or target.archive != job.entry.archive:
        return _load(job, now)
    if plan is None or job.program is None:
        return job, []
    found = apart(job.program.spec, target.spec)
    if job.program.front != target.front:
        found.append(FRONT)
    if found:
        return _cannot_finish(job, now, why, found)
    reason = f"revision {target.revision} ends epoch {job.done + 1}: {why}"
    plan = replace(
        plan, owner=None, generation=job.generation + 1, revision=target.revision,
        archive=target.archive, reason=reason,
    )  # fmt: skip
    job = replace(
        job, plan=plan, generation=plan.generation, program=target, next_program=None,
        next_starts={}, layout=build(target.spec, plan.layout), rewind_to=None,
    ).told(reason)  # fmt: skip
    return job, [PutPlan(job.name, plan)]


def _cannot_finish(job: JobState, now: Now, why: str, reasons: list[str]) -> Step:
    before = job.plan.revision if job.plan is not None else ""
    text = (
        f"epoch {job.done + 1} failed and {why}, so the changed revision has to end it, and "
        f"revision {job.entry.revision} cannot: {'; '.join(reasons)}"
    )
    if job.error is not None and job.error["kind"] == ProcessDied.__name__:
        # Maybe a machine did it, so the old one is tried again; the other may come behind it.
        return replace(job.told(text), next_program=None, rewind_to=None), []
    advice = (
        f"apply a revision first that only corrects keyed operators or settings of {before}, and "
        f"this one when it runs; or `perseid jobs start {job.name} --from scratch`"
    )
    job = replace(job, next_program=None)
    return failing.permanent(job, now, "RefusedError", text, advice)


def rewound(job: JobState, record: Rewind) -> JobState:
    """The job after its Rewind is in the log."""
    kept, moved = _up_to(job, record.epoch), job.positions
    if job.program is not None and job.tokens:
        spec = job.program.spec
        # A source may first be named by a token that is taken back.
        moved = first_positions(spec, (issued.token for issued in job.tokens))
        moved = positions_behind(spec, moved, (issued.token for issued in kept))
    collecting = job.collecting
    if collecting is not None and collecting.epoch > record.epoch:
        collecting = None
    return replace(
        job, appending=False, rewind_to=None, tokens=kept, positions=moved, cut=False,
        collecting=collecting, checks=tuple(c for c in job.checks if c.epoch <= record.epoch),
        checks_to=min(job.checks_to, record.epoch), late_to=min(job.late_to, record.epoch),
    ).told(f"epochs above {record.epoch} taken back")  # fmt: skip


def _up_to(job: JobState, epoch: int) -> tuple[Issued, ...]:
    return tuple(i for i in job.tokens if i.token.epoch <= epoch)


def _may_adopt(job: JobState) -> bool:
    """Whether another program may go on: the old one ran no epoch, or has ended."""
    return not job.tokens or _settled(job, checkpoint=True)


def _settled(job: JobState, *, checkpoint: bool) -> bool:
    """Whether all is done up to a final token and, where asked for, in a checkpoint of it.

    One that was taken before does not do, even if nothing came since. What comes behind a switch
    has no other to go back to, so it is written anew, and whole (`perseid.worker.parts.base_of`).
    """
    last = job.last_token
    if last is None or job.in_flight or not last.final:
        return False
    newest = job.newest
    return not checkpoint or (newest is not None and newest.epoch == last.epoch)


def _final(job: JobState, coordinator_epoch: int, now: Now, *, checkpoint: bool) -> Step:
    """Issues the final token, again when the checkpoint of an earlier one was given up."""
    last, collecting = job.last_token, job.collecting
    waiting = job.in_flight > 0 or (
        checkpoint and last is not None and collecting is not None
        and collecting.epoch == last.epoch
    )  # fmt: skip
    if waiting or job.phase not in OWNED:
        return job, []
    if last is not None and last.final and now.monotonic_s - job.issued_s < FINAL_AGAIN_S:
        return job, []
    token = issue.final_token(job, coordinator_epoch, now, checkpoint=checkpoint)
    if token is None:
        return job, []
    if collecting is not None and checkpoint:
        job = checkpoints.given_up(job, "a later one is needed")
    return replace(job, appending=True), [AppendToken(job.name, token)]


def _load(job: JobState, now: Now) -> Step:
    if job.loading_next or now.monotonic_s < job.next_retry_s:
        return job, []
    known = frozenset((source, at.topic) for (source, _), at in job.positions.items())
    job = replace(job, loading_next=True, next_program=None)
    return job, [LoadProgram(job.name, job.entry.revision, job.entry.archive, known)]


def _adopt_program(job: JobState, target: Program, now: Now) -> Step:
    if job.plan is None or job.program is None:
        return job, []
    grown = needs_new_layout(job.program.spec, target.spec)
    sizes = ", ".join(resized(job.program.spec, target.spec))
    plan = replace(
        job.plan, generation=job.generation + 1, revision=target.revision, archive=target.archive,
        layout=job.plan.layout + grown, reason=f"switch to revision {target.revision}",
        base_epoch=job.tip.epoch, base_offset=job.tip.offset,  # nothing older is for this revision
        checkpoints=job.pointers.pointers if job.newest and job.pointers else (),
        rescaled=bool(sizes) or (job.plan.rescaled and job.plan.base_epoch == job.tip.epoch),
    )  # fmt: skip
    if sizes:
        job = job.told(f"rescaled behind epoch {job.tip.epoch}: {sizes}")
    sources = {name: source.topic for name, source in target.spec.sources.items()}
    kept = {k: p for k, p in job.positions.items() if sources.get(k[0]) == p.topic}
    positions = {**job.next_starts, **kept}
    job = replace(
        job, plan=plan, generation=plan.generation, program=target, next_program=None,
        next_starts={}, layout=build(target.spec, plan.layout), positions=positions, cut=False,
        fragment="",
    ).told(f"switched to revision {target.revision} behind epoch {job.tip.epoch}")  # fmt: skip
    return job.move(Phase.RESTORING, now, plan.reason), [PutPlan(job.name, plan)]
