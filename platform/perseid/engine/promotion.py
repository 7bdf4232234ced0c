"""From which epoch on a replica runs as the primary, decided between two epochs.

Its state, processes and clients stay. What the decision needs does not grow with the state: the
ledgers, and the tokens since the newest complete checkpoint.

1. The ledgers are read, which ends the transactions that the previous owner left open and fences
   it. It may fence back, until a commit of the new generation is in a ledger: what it has committed
   meanwhile is skipped here, since the ledger has it.
2. What it has made as a replica and not yet compared is compared with what the ledgers have by
   then: it may have made other outputs in the last moments before its primary died. Then it fails
   with Diverged, and the leader has the fragment restored from the other copy of its log.
3. The token log is read after that, so it has the token of every epoch that the ledgers have.
4. A token that this replica has run may have been rolled back by a Rewind that it has not read. Its
   state is then of no use, and the fragment restores.
5. `resume.decide`, as after a restore. That a replica has run an epoch does not show that earlier
   ones are committed. Outputs that the ledgers lack are returned from its logs; what they have is
   skipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from perseid.engine import checkpoints, resume
from perseid.engine.feed import base_of, history_since
from perseid.engine.resume import Restored
from perseid.errors import Diverged, PermanentError, RetryableError
from perseid.topics.chain import Base

if TYPE_CHECKING:
    from perseid.engine.feed import TokenHistory
    from perseid.engine.fragment import Runtime
    from perseid.records import CheckpointPointer, Plan


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a replica is: the last epoch that it has run, and the offset of its token.

    `held_from`: by gid of the stateful partitions, as `Restored.held_from` at the restore.
    """

    epoch: int
    offset: int
    held_from: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Resumed:
    """The new primary runs the tokens of `past` above `epoch`. Durations in seconds."""

    past: TokenHistory
    epoch: int
    ledgers_s: float
    history_s: float


def resumed(plan: Plan, runtime: Runtime, reached: Reached) -> Resumed:
    """Decides. Any other failure than a fence or Diverged is a RetryableError.

    The fragment is placed again then.
    """
    try:
        return _resumed(plan, runtime, reached)
    except Diverged:
        raise
    except PermanentError as error:  # if it is true, a restore finds it, too
        raise RetryableError(f"the replica cannot become the primary in place: {error}") from error


def _resumed(plan: Plan, runtime: Runtime, reached: Reached) -> Resumed:
    began_s = runtime.now_s()
    plan = with_newest(plan, runtime.known(False))
    ledgers = runtime.ledgers()()
    compared = runtime.compare()
    read_s = runtime.now_s()
    try:
        past = history_since(base_for(plan, reached), plan.job, runtime.tokens, runtime.topics)
    finally:  # else the fragment is restored from what was not compared
        compared()
    if past.offsets.get(reached.epoch) != reached.offset:
        raise RetryableError(
            f"job {plan.job}: the replica has run the token of epoch {reached.epoch} at offset "
            f"{reached.offset}, and it was rolled back; the fragment restores its state"
        )
    collected = checkpoints.collectable(plan.usable_checkpoints) or 0
    state = {
        gid: Restored(gid, reached.epoch, max(first, collected + 1), resume.UNCOMMITTED)
        for gid, first in reached.held_from.items()
    }
    complete = max((p.epoch for p in plan.usable_checkpoints), default=0)
    found = resume.decide(
        state, ledgers, plan.base_epoch, complete, resends=plan.only.split is not None
    )
    if isinstance(found, resume.Again):
        raise RetryableError(
            f"job {plan.job}: outputs above epoch {found.floor} are not committed, and the replica "
            f"at epoch {reached.epoch} has them no more; the fragment restores its state"
        )
    if found.epoch not in past.offsets:
        raise RetryableError(
            f"job {plan.job}: the ledgers have epoch {found.epoch}, and the token log has no token "
            "of it; the fragment restores its state"
        )
    return Resumed(past, found.epoch, read_s - began_s, runtime.now_s() - read_s)


def with_newest(plan: Plan, known: Sequence[CheckpointPointer]) -> Plan:
    """The plan with those complete checkpoints that are newer: its own are of its placement."""
    newest = max((p.epoch for p in plan.checkpoints), default=0)
    newer = bool(known) and known[0].epoch >= newest
    return replace(plan, checkpoints=tuple(known)) if newer else plan


def base_for(plan: Plan, reached: Reached) -> Base:
    """Where to read the token log from: the newest record before which nothing is needed.

    No epoch at or below a complete checkpoint runs again, and none above the replica's own has run.
    """
    newest = plan.usable_checkpoints[:1]
    if newest and newest[0].epoch > reached.epoch:
        return Base(plan.job_uuid, reached.epoch, reached.offset)
    return base_of(replace(plan, checkpoints=newest))
