"""Where the replicas of a job run, what their reports mean, and when one takes over.

A replica is placed when its primary runs, on another worker, and again when its worker is gone or
when it has failed, after a delay. Its reports count for no epoch of the job. A primary that is
placed on its replica's worker is that replica, promoted (`owning`): at once when the primary's
worker is gone or has handed it over. A replica that has computed other results than its primary
ends the replicas of its plan: the plan has the reason, until another revision or start. Where it
finds that at its promotion, its copy of the state logs is left, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from perseid.coordinator import placement
from perseid.coordinator.actions import Action, PutPlan
from perseid.coordinator.job.ownership import Condition
from perseid.coordinator.model import ClusterState, JobState
from perseid.coordinator.token_time import Now
from perseid.errors import Diverged, ReplayDataLost
from perseid.errors.headline import headline
from perseid.errors.texts import TEXT_MAX, cut
from perseid.records import Assignment, Plan
from perseid.topics.records import EpochDone, FragmentState

LAG_MAX = 5  # epochs that a replica may have to run and still takes over in a moment
FAR = 200  # epochs that take longer to run than a new beginning at a checkpoint
NO_WORKER = "no other worker is live"

Step = tuple[JobState, list[Action]]


def wanted(job: JobState) -> bool:
    """Whether the job's revision asks for replicas."""
    return job.program is not None and job.program.spec.fault_tolerance.replicas == "all"


# -- placing -------------------------------------------------------------------------------------


def without_dead(state: ClusterState, job: JobState) -> JobState:
    """The replicas of workers that are gone wait for another one; no failure of the job."""
    standby = job.standby
    for replica in _replicas(job):
        if replica.owner not in state.workers and _lives(job, replica):
            standby = standby.ended(replica.fragment, f"worker {replica.owner} is gone")
    return job if standby is job.standby else replace(job, standby=standby)


def place(state: ClusterState, job: JobState, now: Now) -> Step:
    """Gives a replica to each primary that runs without one, in one write of the plan."""
    if job.plan is None or not _may_place(job):
        return job, []
    plan, number, loaded = job.plan, job.ownership.next_generation, placement.loads(state)
    standby, lacking = job.standby, list[str]()
    for primary in job.ownership.are(Condition.RUNNING):
        name, old = primary.fragment, job.plan.replica_of(primary.fragment)
        chosen = None
        if old is not None and _stays(state, job, old):
            if not _is_passed(job, old):
                continue
            chosen = old.owner
        elif now.monotonic_s < standby.of(name).retry_s:
            continue
        chosen = chosen or placement.for_replica(state, primary, loaded, old)
        if chosen is not None and _crosses(job):
            continue
        if chosen is not None:
            plan = plan.with_replica(name, chosen, number)
            loaded[chosen] += 1
        elif old is None or not _lives(job, old):
            lacking.append(name)
            standby = standby.ended(name, NO_WORKER)
    if lacking:
        job = _lacks(job if standby is job.standby else replace(job, standby=standby))
    return (job, []) if plan is job.plan else _placed(job, plan)


def _placed(job: JobState, plan: Plan) -> Step:
    made = [a for a in plan.replicas if a.generation == plan.generation]
    standby = job.standby
    for replica in made:
        standby = standby.placed(replica, job.done)
    where = "; ".join(f"of fragment {a.fragment} on {a.owner}" for a in made)
    plan = replace(plan, checkpoints=job.kept, reason=f"replica {where}")
    job = replace(job, standby=standby, ownership=job.ownership.planned(plan))
    return job.with_events(f"a replica restores: {where}"), [PutPlan(job.name, plan)]


def _lacks(job: JobState) -> JobState:
    text = f"`replicas: {{budget: all}}` needs a second worker: {NO_WORKER}"
    return job if text in job.health.events else job.with_events(text)


def _may_place(job: JobState) -> bool:
    return (
        wanted(job) and job.entry.desired == "running" and not job.wants_switch
        and job.switch.rewind_to is None and job.plan is not None and not job.plan.diverged
        and not job.ownership.are(Condition.RESTORING)  # the plan has the checkpoints of these
    )  # fmt: skip


def _stays(state: ClusterState, job: JobState, replica: Assignment) -> bool:
    info = state.workers.get(replica.owner or "")
    return info is not None and not info.leaving and _lives(job, replica)


def _lives(job: JobState, replica: Assignment) -> bool:
    """Whether a live worker has it, as far as is known."""
    return job.standby.condition(replica) is not Condition.WAITING


# -- catching up ---------------------------------------------------------------------------------


def checkpoint_above(job: JobState) -> int:
    """A checkpoint of an epoch above this one would bring a replica nearer; -1 if none would.

    At most one for each time that a replica is placed: above what its primary had done then.
    """
    if not wanted(job) or job.plan is None or job.plan.diverged:
        return -1
    newest = job.newest.epoch if job.newest is not None else job.chain.base.epoch
    if _crosses(job):
        return newest
    is_old = job.chain.tip.epoch - newest > FAR
    brings = (
        newest < job.standby.of(own.fragment).placed_at and _lag(job, own) > FAR
        for own in _running(job)
    )
    return newest if is_old and any(brings) else -1


def _crosses(job: JobState) -> bool:
    """Whether a replica would begin before its revision got its name: it runs no such tokens.

    Another commit with the same files changes only the name, without a final checkpoint.
    """
    plan, tokens = job.plan, job.chain.tokens
    if plan is None or not tokens:
        return False
    saved = max(plan.base_epoch, job.newest.epoch if job.newest is not None else 0)
    at = max(saved + 1 - tokens[0].token.epoch, 0)
    return at < len(tokens) and tokens[at].token.revision != plan.revision


def _is_passed(job: JobState, own: Assignment) -> bool:
    """Whether a replica that begins again, at the newest checkpoint, is at the tip earlier.

    It loses the epochs that its primary runs meanwhile: as many as during its last restore.
    """
    known = job.standby.of(own.fragment)
    if job.newest is None or own not in _running(job):
        return False
    return job.newest.epoch - known.done > max(FAR, 2 * known.missed)


def _running(job: JobState) -> list[Assignment]:
    return [a for a in _replicas(job) if job.standby.condition(a) is Condition.RUNNING]


def _lag(job: JobState, replica: Assignment) -> int:
    return job.chain.tip.epoch - job.standby.of(replica.fragment).done


def _replicas(job: JobState) -> tuple[Assignment, ...]:
    return job.plan.replicas if job.plan is not None else ()


# -- taking over ---------------------------------------------------------------------------------


def successors(state: ClusterState, job: JobState) -> dict[str, str]:
    """By fragment whose primary's worker is gone or leaves it, the worker that has its replica."""
    found = {}
    for primary in job.ownership.waiting:
        replica = job.plan.replica_of(primary.fragment) if job.plan is not None else None
        if replica is not None and replica.owner is not None and primary.owner is not None:
            info = state.workers.get(primary.owner)
            if (info is None or info.leaving) and _stays(state, job, replica):
                found[primary.fragment] = replica.owner
    return found


def promoted(plan: Plan, owners: Mapping[str, str]) -> list[str]:
    """The fragments that are placed where their replica is."""
    return [a.fragment for a in plan.replicas if owners.get(a.fragment, "") == a.owner]


def takeovers(state: ClusterState, plan: Plan, owners: Mapping[str, str], why: str) -> list[str]:
    """For users: which replicas of `plan` become primaries. `why`: where no worker is gone."""
    lines = []
    for name in promoted(plan, owners):
        primary, replica = plan.of_fragment(name), plan.replica_of(name)
        if primary is not None and replica is not None:
            gone = primary.owner not in state.workers
            cause = f"worker {primary.owner} is gone" if gone else headline(why)
            lines.append(f"{cause}: the replica of fragment {name} on {replica.owner} takes over")
    return lines


# -- reports -------------------------------------------------------------------------------------


def reported(job: JobState, record: EpochDone | FragmentState, now: Now) -> Step:
    """The job after the report of a fragment that is no primary; one that has ended is over."""
    replica = next((a for a in _replicas(job) if is_of(record, a)), None)
    if replica is None or not _lives(job, replica):
        return job, []
    name, epoch = replica.fragment, min(record.epoch, job.chain.tip.epoch)
    if isinstance(record, EpochDone):
        return _runs(job, replica, epoch), []
    job = job.with_events(*(e for e in record.events if e not in job.health.events))
    if record.state == "failed":
        return _failed(job, replica, record, now)
    if record.state == "stopped":
        why = f"worker {replica.owner} leaves"
        return replace(job, standby=job.standby.ended(name, why)), []
    return (_runs(job, replica, epoch) if record.state in ("running", "repeated") else job), []


def is_of(record: EpochDone | FragmentState, replica: Assignment) -> bool:
    """Whether the report is from the present owner of the replica."""
    return (record.fragment, record.generation) == (replica.name, replica.generation)


def _runs(job: JobState, replica: Assignment, epoch: int) -> JobState:
    if job.standby.condition(replica) is Condition.RESTORING:
        job = job.with_events(f"the replica of fragment {replica.fragment} on {replica.owner} runs")
    return replace(job, standby=job.standby.runs(replica.fragment, epoch, job.done))


def _failed(job: JobState, replica: Assignment, record: FragmentState, now: Now) -> Step:
    name = replica.fragment
    text = record.error or "it failed without a reason"
    if record.error_kind == Diverged.__name__:
        return _diverged(job, replica, text)
    title = f"the replica of fragment {name} on {replica.owner} failed: {headline(text)}"
    if record.error_kind == ReplayDataLost.__name__:  # its advice is for a primary
        title = (
            f"the replica of fragment {name} on {replica.owner} was so late that the records it "
            "needs are deleted; it restores from a newer checkpoint"
        )
    if title not in job.health.events:
        job = job.with_events(title)
    standby = job.standby.failed(name, job.done, now.monotonic_s, title)
    return replace(job, standby=standby), []


def _diverged(job: JobState, replica: Assignment, text: str) -> Step:
    """The plan has no replicas from now on: what they compute is not what is committed."""
    assert job.plan is not None
    number = job.ownership.next_generation
    all_ = [a.fragment for a in job.plan.replicas]
    plan = replace(
        job.plan.without_replicas(all_, number), diverged=cut(text, TEXT_MAX),
        reason=f"the replica of fragment {replica.fragment} has diverged",
    )  # fmt: skip
    job = job.with_events(f"{plan.reason}, and the job has none now: {headline(text)}")
    return replace(job, ownership=job.ownership.planned(plan)), [PutPlan(job.name, plan)]


def unfit(job: JobState, fragment: str, text: str) -> Step:
    """A replica found at its promotion that it had diverged.

    The fragment has the other copy of its logs again. A host without that one, or with an old one,
    restores a checkpoint. As without a replica, epochs that are committed run again.
    """
    assert job.plan is not None
    number = job.ownership.next_generation
    plan = job.plan.placed({fragment: None}, number)
    assignments = tuple(
        replace(a, log=a.other_log) if a.fragment == fragment else a for a in plan.assignments
    )
    plan = replace(
        plan, assignments=assignments, replicas=(), diverged=cut(text, TEXT_MAX),
        reason=f"the replica of fragment {fragment} has diverged, as it showed when it took over",
    )  # fmt: skip
    job = job.with_events(
        f"{plan.reason}: the fragment is restored without what it had, and gets no replica: "
        f"{headline(text)}"
    )
    return replace(job, ownership=job.ownership.planned(plan)), [PutPlan(job.name, plan)]


# -- what users see ------------------------------------------------------------------------------


def unprotected(job: JobState) -> str:
    """Why the death of a worker costs the job a restore; empty when replicas take over."""
    plan = job.plan
    if not wanted(job):
        return "job.yaml asks for no replicas"
    if plan is None or len(job.ownership.are(Condition.RUNNING)) < len(plan.primaries):
        return "the job does not run"
    if plan.diverged:
        return f"a replica has diverged: {headline(plan.diverged)}"
    reasons = (_lacking(job, plan, primary) for primary in plan.primaries)
    return next((reason for reason in reasons if reason), "")


def _lacking(job: JobState, plan: Plan, primary: Assignment) -> str:
    replica, known = plan.replica_of(primary.fragment), job.standby.of(primary.fragment)
    condition = job.standby.condition(replica) if replica is not None else Condition.WAITING
    if condition is Condition.WAITING and _crosses(job):
        return f"its replica waits for the first checkpoint of revision {plan.revision}"
    if condition is Condition.WAITING:
        return known.why or "its replica is not placed yet"
    if condition is Condition.RESTORING:
        return "its replica restores"
    lag = job.ownership.done_of(primary) - known.done
    return f"its replica has {lag} epochs to run" if lag > LAG_MAX else ""
