"""What a failure leads to: another attempt with a higher generation, or an end that users see.

Transient failures are retried without limit, with growing delays while no epoch is done in between.
ZooKeeper holds the count, so that a new leader does not restart with short delays. A permanent
failure is written to the status first, and only then the plan loses its owner: a reader in between
finds the failure.

An unexpected error of code or data (`UnexpectedError`) is transient twice and permanent the third
time at the same epoch, on any worker. Other failures in between neither count nor reset the count.
A new leader, or a job that is loaded again, restarts the count.

Of a job of several fragments a transient failure concerns one, or those of one worker: only these
wait and are placed again. What makes one fail often makes others fail too, so failures count once
until a fragment fails again. A permanent failure of one ends the job.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from perseid.clocks import growing_s
from perseid.coordinator import statuses
from perseid.coordinator.actions import Action, PutFailures, PutPlan
from perseid.coordinator.job.ownership import Condition
from perseid.coordinator.lifecycle import Phase
from perseid.coordinator.model import JobState
from perseid.coordinator.token_time import Now
from perseid.errors import (
    BadInputError,
    LogTruncated,
    ReplayDataLost,
    TopicIdentityChanged,
    settling,
)
from perseid.errors.headline import headline
from perseid.errors.settling import Repeated
from perseid.errors.texts import EVENT_MAX, TEXT_MAX, cut
from perseid.records import WHOLE, JobFailures
from perseid.topics.records import EpochDone

RETRY_FIRST_S = 0.5  # the first retry has no delay, the second has this one
RETRY_MAX_S = 30.0
TRIES_MAX = 3  # of an epoch that ends with an unexpected error

Step = tuple[JobState, list[Action]]


def delay_s(count: int) -> float:
    """How long to wait before the attempt after failure number `count`."""
    if count <= 1:
        return 0.0
    return growing_s(count - 1, RETRY_FIRST_S, RETRY_MAX_S)


def with_tries(job: JobState, fragment: str, text: str) -> str:
    """The text of an unexpected error at its last try."""
    epoch = job.ownership.done_by.get(fragment, job.done) + 1
    tries = f"Epoch {epoch} was tried {job.health.unexpected} times; the job's state is kept"
    return f"{cut(text, TEXT_MAX - len(tries) - 1)}\n{tries}"


def origin(fragment: str) -> str:
    """Where the answers come from that a fragment reports."""
    return "worker" if fragment == WHOLE else f"worker of fragment {fragment}"


def transient(
    job: JobState, now: Now, fragments: Collection[str], text: str, *, died: bool = False
) -> Step:
    """Counts a failure; these fragments are placed again after its delay.

    `died`: a process has died.
    """
    before = job.health.failures
    failures = counted(before, job, now, text)
    if before is not None and before.count and not job.health.fails_again(fragments):
        failures = replace(failures, count=before.count)
    retry_s = now.monotonic_s + delay_s(failures.count)
    done = max(job.ownership.done_by.get(name, job.done) for name in fragments)
    health = job.health.failed(failures, fragments, done, retry_s, died=died)
    job = replace(job, health=health)
    title = f"failure {failures.count}{_of(job, fragments)}"
    job = job.with_events(f"{title}: {headline(failures.text)}")
    waiting = job.ownership.become(Condition.WAITING, fragments)
    return job.owned(waiting, now, text[:200]), [PutFailures(job.name, failures)]


def _of(job: JobState, fragments: Collection[str]) -> str:
    """For events of a job of several fragments: which of them it concerns."""
    if job.spread is None:
        return ""
    several = "s" if len(fragments) > 1 else ""
    return f" of fragment{several} {', '.join(fragments)}"


def counted(before: JobFailures | None, job: JobState, now: Now, text: str) -> JobFailures:
    """One more than `before`; since when, by the time of a leader whose clock may be set."""
    count = before.count if before is not None else 0
    since_ms = before.since_ms if before is not None and count else int(now.time_ms)
    return JobFailures(
        job.entry.uuid, count + 1, now.wall_ms, cut(text), since_ms, job.entry.counter
    )


def forgotten(job: JobState, now: Now) -> Step:
    """Clears the failures of the previous revision when another one begins."""
    if not job.health.is_failing:
        return job, []
    failures = JobFailures(job.entry.uuid, 0, now.wall_ms)
    job = replace(job, health=job.health.recovered(failures).retry_at(now.monotonic_s))
    return job, [PutFailures(job.name, failures)]


def settled(
    job: JobState, where: str, kind: str, text: str, now: Now
) -> tuple[JobState, str, bool]:
    """The job after an error at `where`, the error's text, and whether it is final now.

    Only broker answers become final, by repetition (`perseid.errors.settling`).
    """
    answer = settling.heard(job.health.answers.get(where), where, kind, now.monotonic_s)
    if answer is None or not answer.is_final:
        return _with_answer(job, where, answer), text, False
    return answered(job, where), settling.final_text(text, answer), True


def answered(job: JobState, where: str) -> JobState:
    """The job after something other than a transient answer arrived from `where`."""
    return _with_answer(job, where, None)


def _with_answer(job: JobState, where: str, answer: Repeated | None) -> JobState:
    health = job.health.answered(where, answer)
    return job if health is job.health else replace(job, health=health)


def handed_over(job: JobState, now: Now, worker: str, fragment: str) -> JobState:
    """A leaving worker has ended its epoch: no failure, so the fragment is placed again at once."""
    done = job.ownership.done_by.get(fragment, job.done)
    what = "it" if job.spread is None else f"fragment {fragment}"
    text = f"worker {worker} leaves and hands {what} over after epoch {done}"
    return _passed_on(job, now, [fragment], text)


def left(job: JobState, now: Now, worker: str, fragments: Collection[str]) -> JobState:
    """An announced leave completed, and the worker's last report on these was not seen."""
    return _passed_on(job, now, fragments, f"worker {worker} has left, as announced")


def _passed_on(job: JobState, now: Now, fragments: Collection[str], text: str) -> JobState:
    if not job.ownership.are(Condition.WAITING):  # a delay after a failure is not cut short
        job = replace(job, health=job.health.retry_at(now.monotonic_s))
    waiting = job.ownership.become(Condition.WAITING, fragments)
    return job.with_events(text).owned(waiting, now, text)


def progressed(job: JobState, record: EpochDone, now: Now) -> Step:
    """Clears the failures once an epoch is done that was not done at the last failure."""
    job = answered(job, origin(record.fragment))
    if not job.health.is_failing or job.done <= job.health.failed_at:
        return job, []
    failures = JobFailures(job.entry.uuid, 0, now.wall_ms)
    job = replace(job, health=job.health.recovered(failures))
    return job, [PutFailures(job.name, failures)]


def permanent(job: JobState, now: Now, kind: str, text: str, next_step: str = "") -> Step:
    """Stops the job with an error that names the next step."""
    error = status_error(job, kind, text, next_step or advice(job.name, kind, text))
    job = replace(
        job, health=job.health.ended(error), checkpointing=job.checkpointing.dropped(),
        switch=job.switch.rewind_over(),
    )  # fmt: skip
    job = job.with_events(f"failed: {kind}").move(Phase.FAILED, now, f"{kind}: {text[:200]}")
    job, actions = statuses.write(job, now)
    return job, [*actions, *disown(job, f"failed: {kind}")[1]] if has_owner(job) else actions


def status_error(job: JobState, kind: str, text: str, next_step: str) -> dict[str, Any]:
    """The error of a status.

    `epoch`: the last done one; `owner`, or `owners` by fragment: their hosts have the state logs.
    """
    error: dict[str, Any] = {
        "kind": cut(kind, EVENT_MAX), "text": cut(text), "next": cut(next_step), "epoch": job.done,
    }  # fmt: skip
    before = job.health.error or {}  # if it has no owner, it has not run since
    if job.spread is None:
        return {**error, "owner": job.ownership.owner or before.get("owner")}
    return {**error, "owners": {**before.get("owners", {}), **job.ownership.owners}}


def has_owner(job: JobState) -> bool:
    return bool(job.ownership.owners)


def disown(job: JobState, reason: str) -> Step:
    """Takes the job from its owner under a new generation."""
    if job.plan is None:
        return job, []
    plan = replace(job.plan.handed_to(None, job.ownership.next_generation), reason=reason)
    return replace(job, ownership=job.ownership.planned(plan)), [PutPlan(job.name, plan)]


def advice(job: str, kind: str = "", text: str = "") -> str:
    """The next step. `text` is checked too: an error that came through Spark has lost its kind."""
    named = {kind, text.partition("(")[0]}
    if TopicIdentityChanged.__name__ in named:
        return f"`perseid jobs remove {job}` and `perseid jobs apply REPO`: a start fails again"
    if named & {ReplayDataLost.__name__, LogTruncated.__name__}:
        return f"`perseid jobs start {job} --from scratch`: without that it fails again"
    if kind == BadInputError.__name__:
        return (
            "mend the job, or let it continue without such records (`errors: {tolerance: all}`, or "
            "`errors: {operator: bisect}` of an operator), and `perseid jobs apply REPO` it again: "
            "as it is it meets the same record"
        )
    return (
        f"change the job and type `perseid jobs apply REPO` again, or try it again as it is with "
        f"`perseid jobs start {job}`"
    )
