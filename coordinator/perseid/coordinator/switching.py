"""From what runs to what the user wants: stop, change of revision, removal.

The goal is the difference between the job's entry and its plan, so it survives any crash.

Stop:    a final token, with a checkpoint if asked for; when it is done the plan loses its owner.
Switch:  1. no more input is named under the old revision, and the new program is loaded;
         2. a final token without input asks for a checkpoint under the old revision;
         3. when that checkpoint is complete, a plan with a higher generation names the new one.
         The layout rises in step 3 only, so every token runs in the layout that it names.
Rescale: a switch to another number of operator partitions. The results of the old partitions are
         committed and in that checkpoint; the new owner redistributes their state and resumes.
Spread:  a switch to another number of fragments likewise; those without an owner are placed next.

`corrections` handles the change of a failed job.
"""

from __future__ import annotations

from dataclasses import replace

from perseid.coordinator import checkpoints, failing, horizon, issue
from perseid.coordinator.actions import Action, AppendToken, LoadProgram, PutPlan
from perseid.coordinator.job.ownership import Ownership
from perseid.coordinator.job.program import Program
from perseid.coordinator.lifecycle import OWNED, Phase
from perseid.coordinator.model import JobState
from perseid.coordinator.token_time import Now
from perseid.jobs.model import assignments
from perseid.jobs.operations.change import needs_new_layout, resized
from perseid.records import Plan

Step = tuple[JobState, list[Action]]

FINAL_AGAIN_S = 2.0  # an unreachable store fails each checkpoint at once: limits the tokens


def stop(job: JobState, coordinator_epoch: int, now: Now) -> Step:
    """One step towards a stopped job."""
    settled = not job.chain.tokens or _settled(job, checkpoint=job.entry.stop_checkpoint)
    if settled or (job.phase is not Phase.RUNNING and not job.entry.stop_checkpoint):
        return finish_stop(job, now)
    return _final(job, coordinator_epoch, now, checkpoint=job.entry.stop_checkpoint)


def finish_stop(job: JobState, now: Now) -> Step:
    actions: list[Action] = []
    if failing.has_owner(job):
        job, actions = failing.disown(job, "stopped")
    return job.move(Phase.STOPPED, now, "as the user wants"), actions


def switch(job: JobState, coordinator_epoch: int, now: Now) -> Step:
    """One step towards the entry's revision."""
    target = job.switch.target_of(job.entry.archive)
    if target is None:
        return load(job, now)
    if may_adopt(job):
        return adopt_program(job, target, now)
    return _final(job, coordinator_epoch, now, checkpoint=True)


def rename_revision(job: JobState) -> Step:
    """Another commit with the same files: the plan only takes over its name.

    With an audit horizon the files of the old name are known first.
    """
    entry, plan = job.entry, job.plan
    if plan is None or plan.archive != entry.archive or plan.revision == entry.revision:
        return job, []
    if not horizon.knows(job, plan.revision):
        return job, []
    plan = replace(plan, revision=entry.revision)
    program = replace(job.program, revision=entry.revision) if job.program else None
    job = replace(job, ownership=job.ownership.renamed(plan), program=program)
    return job, [PutPlan(job.name, plan)]


def may_adopt(job: JobState) -> bool:
    """Whether another program may take over: the old one ran no epoch, or has ended."""
    return not job.chain.tokens or _settled(job, checkpoint=True)


def _settled(job: JobState, *, checkpoint: bool) -> bool:
    """Whether all is done up to a final token and, if asked for, in a checkpoint of that token.

    An earlier checkpoint does not count, even if nothing followed it. The revision after a switch
    has no other one to fall back to, so it is written again, as a full checkpoint
    (`perseid.engine.checkpoints.base_of`).
    """
    last = job.chain.last_token
    if last is None or job.in_flight or not last.final:
        return False
    newest = job.newest
    return not checkpoint or (newest is not None and newest.epoch == last.epoch)


def _final(job: JobState, coordinator_epoch: int, now: Now, *, checkpoint: bool) -> Step:
    """Issues the final token, again if the checkpoint of an earlier one was aborted."""
    last, collecting = job.chain.last_token, job.checkpointing.collecting
    waiting = job.in_flight > 0 or (
        checkpoint and last is not None and collecting is not None
        and collecting.epoch == last.epoch
    )  # fmt: skip
    if waiting or job.phase not in OWNED:
        return job, []
    if last is not None and last.final and now.monotonic_s - job.chain.issued_s < FINAL_AGAIN_S:
        return job, []
    token = issue.final_token(job, coordinator_epoch, now, checkpoint=checkpoint)
    if token is None:
        return job, []
    if collecting is not None and checkpoint:
        job = checkpoints.aborted(job, "a later one is needed")
    return issue.appending(job, now), [AppendToken(job.name, token)]


def load(job: JobState, now: Now) -> Step:
    """Requests a load of the entry's revision: once, and again some time after a failure."""
    if not job.switch.may_load(now.monotonic_s):
        return job, []
    known = frozenset((source, at.topic) for (source, _), at in job.inputs.positions.items())
    job = replace(job, switch=job.switch.load_begun())
    return job, [LoadProgram(job.name, job.entry.revision, job.entry.archive, known)]


def adopt_program(job: JobState, target: Program, now: Now) -> Step:
    """Names `target` in the plan; everything of the old program precedes the plan's base."""
    if job.plan is None or job.program is None:
        return job, []
    tip = job.chain.tip
    grown = needs_new_layout(job.program.spec, target.spec)
    sizes = ", ".join(resized(job.program.spec, target.spec))
    rescaled = bool(sizes) or (job.plan.rescaled and job.plan.base_epoch == tip.epoch)
    before, layout = job.ownership, job.plan.layout + grown
    job = job.with_program(target, layout)
    plan = replace(
        _renewed(job, before, grown=grown).based_on(tip.epoch, tip.offset),  # none of older tokens
        revision=target.revision, archive=target.archive, layout=layout,
        reason=f"switch to revision {target.revision}", checkpoints=job.kept, rescaled=rescaled,
    )  # fmt: skip
    if sizes:
        job = job.with_events(f"rescaled after epoch {tip.epoch}: {sizes}")
    sources = {name: source.topic for name, source in target.spec.sources.items()}
    kept = {k: p for k, p in job.inputs.positions.items() if sources.get(k[0]) == p.topic}
    positions = {**job.switch.starts, **kept}
    job = replace(
        job, switch=job.switch.completed(), inputs=job.inputs.switched(positions, now.monotonic_s)
    ).with_events(f"switched to revision {target.revision} after epoch {tip.epoch}")
    if job.phase in OWNED:
        job = job.owned(before.planned(plan), now, plan.reason)
    else:
        job = replace(job, ownership=before.planned(plan))
    job, actions = failing.forgotten(job, now)
    return job, [PutPlan(job.name, plan), *actions]


def _renewed(job: JobState, before: Ownership, *, grown: bool) -> Plan:
    """All fragments under a new generation, in another layout with its partitions.

    A fragment keeps its owner where there was one of its name; others are placed next.
    """
    assert before.plan is not None
    renewed = before.plan.renewed(before.next_generation)
    if not grown:
        return renewed
    made = assignments.cut(renewed, job.spread)
    owners = before.owners
    kept = tuple(replace(a, owner=owners.get(a.fragment)) for a in made.assignments)
    return replace(made, assignments=kept)
