"""When the next token is due, and how much input it names.

A token names, for each source partition, the range from where the last token ended. Positions move
only here, so exactly one valid token names each offset. The first token of a chain or of a revision
and every checkpoint token name *all* partitions, quiet ones with empty ranges: a reader of the
chain from a checkpoint on therefore knows every position.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import median

from perseid.coordinator import (
    buffer_bound,
    checkpoints,
    holding,
    input_bytes,
    input_checks,
    token_time,
    watermark,
)
from perseid.coordinator.job.chain import Issued
from perseid.coordinator.job.ownership import Condition
from perseid.coordinator.lifecycle import OWNED, Phase
from perseid.coordinator.model import JobState
from perseid.coordinator.splits import by_share, ordered_sources, split
from perseid.coordinator.token_time import Now
from perseid.jobs.model.spec import EpochSpec
from perseid.records import Assignment
from perseid.topics.records import EpochDone, SourceRange, Token

IDLE_TOKEN_S = 10.0  # contracts.md: an idle job gets one token every 10 s
CREDITS_IDLE = 1  # without backlog the next epoch takes what arrived during this one
CREDITS_BACKLOG = 2  # with backlog the worker finds the next token when it ends an epoch
AHEAD_MAX = 200  # epochs from the slowest fragment to the tip: what it has to catch up with
LATE_S = 0.5  # without the end of an epoch: less than it takes to know that a worker is dead
LATE_EPOCHS = 2  # usual epochs, if they are longer
SIZE_FIRST = 20_000  # of a job whose speed is not known yet
SIZE_MIN = 500  # no epoch is made smaller to meet its target: overhead would dominate
WORK_SHARE_MIN = 0.5  # of an epoch's time: less work than overhead would be a downward spiral
CATCH_UP = 6.0  # waiting epochs that make the lag "large", and the targets it then has
SIZE_STEP_MAX = 2.0  # growth and shrinking per measured epoch, against noise


def next_token(
    job: JobState, coordinator_epoch: int, now: Now, *, cores: int | None = None
) -> Token | None:
    """The token that is due now, else None. `cores`: of the worker that owns the job."""
    if not may_issue(job, now.monotonic_s):
        return None
    if buffer_bound.is_near(job):
        return _freeing_token(job, coordinator_epoch, now)
    idle = now.monotonic_s - job.chain.issued_s >= IDLE_TOKEN_S
    first = _first_of_its_revision(job)
    wanted = job.inputs.backlog or idle or checkpoints.asked(job, now)
    if not (wanted or (first and _from_the_end(job)) or watermark.moves(job)):
        return None
    checkpoint = checkpoints.due(job, now)
    if holding.is_full(job) and not checkpoint:
        return None
    ranges = cut_input(job, full=checkpoint or first)
    return make_token(job, coordinator_epoch, ranges, now, checkpoint=checkpoint, cores=cores)


def _freeing_token(job: JobState, coordinator_epoch: int, now: Now) -> Token | None:
    """The one that buffers near their bound wait for, unless a checkpoint is under way."""
    if not job.checkpointing.may_begin(now.monotonic_s):
        return None
    ranges = _empty_ranges(job)
    return make_token(job, coordinator_epoch, ranges, now, checkpoint=True, whole=True)


def final_token(
    job: JobState, coordinator_epoch: int, now: Now, *, checkpoint: bool
) -> Token | None:
    """The last token before a stop or a switch: no input; None until all earlier ones are done."""
    if job.chain.appending or job.in_flight:
        return None
    return make_token(
        job, coordinator_epoch, _empty_ranges(job), now, checkpoint=checkpoint, final=True
    )


def may_issue(job: JobState, now_s: float) -> bool:
    """Whether the job has a credit for another epoch.

    A part of a job that does not depend on a lost worker continues: see `_able`, AHEAD_MAX.
    """
    if job.chain.appending or not job.chain.begun or job.phase not in OWNED:
        return False
    if job.inputs.truncated is not None:
        return False
    if job.in_flight >= AHEAD_MAX:
        return False
    able = _able(job, now_s)
    done = min((job.ownership.done_of(a) for a in able), default=job.done)
    ahead = CREDITS_BACKLOG if able and job.inputs.has_backlog else CREDITS_IDLE
    return job.chain.tip.epoch - done < ahead


def _able(job: JobState, now_s: float) -> list[Assignment]:
    """The fragments whose epochs are waited for: all of them, if all run.

    A fragment that waits for one without an owner, for one that is late, whose worker may be dead
    or may hang, or for one that catches up after a restore, does not hold back the others. Without
    any such trouble none is further from the tip than credits allow, so one that is further catches
    up.
    """
    primaries, tip = job.ownership.primaries, job.chain.tip.epoch
    if job.spread is None:
        return list(primaries) if job.phase is Phase.RUNNING else []
    usual_s = median(d.duration_ms for d in job.inputs.recent) / 1000 if job.inputs.recent else 0.0
    limit_s = max(LATE_S, LATE_EPOCHS * usual_s)
    ready = {
        a.split for a in job.ownership.are(Condition.RUNNING)
        if tip - job.ownership.done_of(a) <= CREDITS_BACKLOG
        and not job.ownership.is_late(a, tip, now_s, limit_s)
    }  # fmt: skip
    return [a for a in primaries if a.split is not None and job.spread.waits_for(a.split) <= ready]


def _first_of_its_revision(job: JobState) -> bool:
    last = job.chain.last_token
    return last is None or job.plan is None or last.revision != job.plan.revision


def _from_the_end(job: JobState) -> bool:
    """Whether a source begins at its end, which only this leader knows until a token names it.

    The next leader would ask for the end again and skip the records that arrived since.
    """
    spec = job.program.spec if job.program is not None else None
    return spec is not None and any(one.start == "latest" for one in spec.sources.values())


def cut_input(job: JobState, *, full: bool) -> tuple[SourceRange, ...]:
    """The waiting input up to the job's epoch size, shared evenly among partitions that wait.

    Large records reduce the number (`input_bytes`).
    """
    waiting = {
        key: records
        for key, position in job.inputs.positions.items()
        if (records := job.inputs.ends.get((position.topic, key[1]), 0) - position.offset) > 0
    }
    most = job.program.spec.epoch if job.program is not None else EpochSpec(max_records=SIZE_FIRST)
    size = min(job.inputs.size or SIZE_FIRST, most.max_records)
    shares = share(waiting, max(1, int(size * job.inputs.throttle_factor)))
    shares = input_bytes.within(shares, job.inputs.record_bytes, most.max_bytes)
    ranges = []
    for (source, partition), position in sorted(job.inputs.positions.items()):
        records = shares.get((source, partition), 0)
        if records or full:
            ranges.append(
                SourceRange(source, position.topic, position.topic_id, partition,
                            position.offset, position.offset + records)
            )  # fmt: skip
    return tuple(ranges)


def share(waiting: Mapping[tuple[str, int], int], room: int) -> Mapping[tuple[str, int], int]:
    """Gives each partition an even part of `room`; what one does not need goes to the others."""
    shares: dict[tuple[str, int], int] = {}
    for left, (key, records) in enumerate(sorted(waiting.items(), key=lambda i: (i[1], i[0]))):
        even = -(-room // (len(waiting) - left))  # rounded up, so that a small room is used too
        shares[key] = min(records, even)
        room -= shares[key]
    return shares


def make_token(
    job: JobState, coordinator_epoch: int, ranges: tuple[SourceRange, ...], now: Now, *,
    checkpoint: bool, final: bool = False, whole: bool = False, cores: int | None = None,
) -> Token:  # fmt: skip
    """The token after the job's tip. Its time and watermark never fall below the last token's."""
    if job.plan is None or job.program is None:
        raise ValueError(f"job {job.name} has no plan to issue tokens under")
    spec = job.program.spec
    if job.spread is not None:
        splits = by_share(ranges, job.spread)
    else:
        tasks = min(filter(None, (spec.parallelism, cores)))
        splits = split(ranges, tasks, ordered_sources(spec), job.inputs.positions)
    return Token(
        coordinator_epoch=coordinator_epoch,
        job_uuid=job.entry.uuid,
        epoch=job.chain.tip.epoch + 1,
        previous_offset=job.chain.tip.offset,
        revision=job.plan.revision,
        layout=job.plan.layout,
        splits=splits,
        time_ms=int(token_time.passed(job.chain.time, now.time_ms, now).ms),
        watermark_ms=watermark.next_ms(job),
        checkpoint=checkpoint,
        final=final,
        checks=input_checks.carried(job.inputs.checks),
        generation=job.plan.floor,
        whole=whole,
    )


def appending(job: JobState, now: Now) -> JobState:
    """The job while its next token is being appended."""
    time = token_time.passed(job.chain.time, now.time_ms, now)
    return replace(job, chain=job.chain.appends_token(time))


def appended(job: JobState, token: Token, offset: int, now: Now) -> JobState:
    """The job after its token is in the log at `offset`."""
    held = holding.is_full(job)
    job = watermark.issued(job, token)
    if job.spread is not None:
        job = replace(job, ownership=job.ownership.asked(token.epoch, now.monotonic_s))
    job = replace(
        job, chain=job.chain.extended(token, offset, now.monotonic_s),
        inputs=job.inputs.named(token, now.monotonic_s),
    )  # fmt: skip
    if holding.is_full(job) and not held:
        job = job.with_events(holding.reason(job))
    return checkpoints.begin(job, Issued(offset, token), now) if token.checkpoint else job


def adapted_size(job: JobState, done: EpochDone) -> int:
    """The epoch size after an epoch, in records.

    Only an epoch of at least half the size counts (or half of what `epoch.maxBytes` allows): a
    small one is mostly overhead. A line through the recent epochs (duration over rows) gives the
    fixed cost of an epoch and the cost of a record. Records get the target less the fixed cost, but
    at least as much time as the fixed cost: smaller epochs would only add overhead, and the backlog
    would grow without limit. A job with a large lag aims at CATCH_UP targets: its input waits
    longer anyway, and larger epochs end the wait sooner.
    """
    program = job.program
    size = job.inputs.size or SIZE_FIRST
    rows, duration_ms = done.rows_in, done.duration_ms
    if program is None or duration_ms <= 0:
        return size
    by_bytes = input_bytes.records_max(done, program.spec.epoch.max_bytes)
    if rows * 2 < min(size, by_bytes or size):
        return size
    target_ms = program.spec.epoch.target_s * 1000
    if job.inputs.backlog > CATCH_UP * size:
        target_ms *= CATCH_UP
    points = [(d.rows_in, d.duration_ms) for d in job.inputs.recent] + [(rows, duration_ms)]
    fixed_ms, record_ms = cost_line(points)
    room_ms = max(target_ms - fixed_ms, fixed_ms * WORK_SHARE_MIN / (1 - WORK_SHARE_MIN))
    step = room_ms / record_ms / rows if record_ms > 0 else SIZE_STEP_MAX
    wanted = rows * min(max(step, 1 / SIZE_STEP_MAX), SIZE_STEP_MAX)
    size_max = program.spec.epoch.max_records
    return max(min(int(wanted), size_max), min(SIZE_MIN, size_max))


def cost_line(points: list[tuple[int, int]]) -> tuple[float, float]:
    """(fixed ms of an epoch, ms of a record): the least squares line, never below zero.

    If all epochs have one size, the fixed cost cannot be separated: all time counts as the
    records'.
    """
    count = len(points)
    mean_rows = sum(rows for rows, _ in points) / count
    mean_ms = sum(ms for _, ms in points) / count
    spread = sum((rows - mean_rows) ** 2 for rows, _ in points)
    if spread == 0:
        return 0.0, mean_ms / mean_rows if mean_rows else 0.0
    slope = sum((rows - mean_rows) * (ms - mean_ms) for rows, ms in points) / spread
    slope = max(slope, 0.0)
    fixed = mean_ms - slope * mean_rows
    return (fixed, slope) if fixed >= 0 else (0.0, mean_ms / mean_rows)


def _empty_ranges(job: JobState) -> tuple[SourceRange, ...]:
    return tuple(
        SourceRange(source, p.topic, p.topic_id, partition, p.offset, p.offset)
        for (source, partition), p in sorted(job.inputs.positions.items())
    )
