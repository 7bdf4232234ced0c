"""The epoch from which a fragment resumes: a pure decision over logs, checkpoints and ledgers.

Logs and ledgers are of its own operator partitions, and the checkpoints are the job's. An epoch
runs for all of a fragment's partitions or for none, so the fragment resumes after the lowest epoch
that any of them has finished. A partition that is ahead must be able to return its later output
again: its log has those epochs' retained outputs, or its ledger has committed them. A partition
that is ahead without them restores a checkpoint, which may lower the epoch for all. In a fragment
no epoch begins before the previous one is committed, and a checkpoint is complete when its epoch is
committed everywhere. So a ledger that ends before that has lost records that the broker had
acknowledged, such as after a power failure without a flush (compose/FAULTS.md, logs that lost
records). Its sink topics may still hold the output of these records, and writing it again would
silently duplicate it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from perseid.errors import lost_by_broker

UNCOMMITTED = "log of a replica"  # a replica may run epochs long before its primary commits them


@dataclass(frozen=True, slots=True)
class Restored:
    """The state of one stateful operator partition after a restore.

    `epoch`: its state is that of the end of this epoch. `held_from`: the log holds the outputs of
    all epochs from here to `epoch`; `epoch` + 1 if of none. `source`: "log", UNCOMMITTED,
    "checkpoint:<epoch>" or "scratch". `rows` and `bytes`: approximate size of the state, as its
    primitives count.
    """

    gid: int
    epoch: int
    held_from: int
    source: str
    events: tuple[str, ...] = ()
    rows: int = field(default=0, compare=False)
    bytes: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Again:
    """These partitions must be restored to `floor` or below before the fragment can resume."""

    gids: tuple[int, ...]
    floor: int


@dataclass(frozen=True, slots=True)
class Proceed:
    """The fragment runs the epochs above `epoch`."""

    epoch: int


def decide(
    restored: Mapping[int, Restored],
    ledgers: Mapping[int, int],
    base_epoch: int,
    complete_epoch: int = 0,
    *,
    resends: bool = False,
) -> Proceed | Again:
    """What to do after every stateful partition was restored once.

    Args:
        restored: by gid, all stateful partitions.
        ledgers: by gid, the last committed epoch of all partitions that feed a sink; partitions
            that have committed nothing yet are at `base_epoch`.
        base_epoch: the epoch after which the plan starts.
        complete_epoch: that of the newest complete checkpoint, 0 without one; all committed it.
        resends: what the fragment sends to others leaves after its commit point, so the last
            epoch that it has committed may not have been sent: it runs again. All earlier ones
            were sent, and so was that of a complete checkpoint.

    Raises:
        PermanentError: a ledger lacks an epoch that must have been committed.
    """
    _check_ledgers(restored, ledgers, complete_epoch)
    reached = [r.epoch for r in restored.values()] + list(ledgers.values())
    # Without state and sinks it only sends, and has sent what a complete checkpoint covers.
    floor = min(reached, default=max(base_epoch, complete_epoch))
    if resends and floor > complete_epoch:
        floor = max(floor - 1, base_epoch)
    lacking = tuple(
        gid for gid, r in sorted(restored.items()) if r.epoch > floor and r.held_from > floor + 1
    )
    return Again(lacking, floor) if lacking else Proceed(floor)


def summary(restored: Mapping[int, Restored], seconds: float) -> str:
    """The sources of the partitions' states and the speed, for users. Empty without partitions."""
    if not restored:
        return ""
    sources = ", ".join(sorted({r.source for r in restored.values()}))
    rows, megabytes = (sum(r.rows for r in restored.values()),
                       sum(r.bytes for r in restored.values()) / 1e6)  # fmt: skip
    seconds = max(seconds, 1e-3)
    return (
        f"{sources} ({rows:,} rows, {megabytes:,.1f} MB in {seconds:.1f} s: "
        f"{rows / seconds:,.0f} rows/s, {megabytes / seconds:,.1f} MB/s)"
    )


def _check_ledgers(
    restored: Mapping[int, Restored], ledgers: Mapping[int, int], complete_epoch: int
) -> None:
    committed = max([complete_epoch, *map(_committed, restored.values())])
    lagged = {gid: epoch for gid, epoch in sorted(ledgers.items()) if epoch < committed}
    if lagged:
        gid, epoch = next(iter(lagged.items()))
        raise lost_by_broker(
            f"{len(lagged)} ledger partitions are before state and checkpoints, first that of task "
            f"{gid}: it ends with epoch {epoch}, and epoch {committed} was committed"
        )


def _committed(found: Restored) -> int:
    """The epoch that all had committed when this state was made, as far as it shows; else 0."""
    if found.source == UNCOMMITTED:
        return 0
    return found.epoch - 1 if found.source == "log" else found.epoch
