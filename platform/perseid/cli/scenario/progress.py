"""A job's progress, computed from its token log and its ledger alone. Pure.

Tokens have the input of each epoch; the ledger, written inside the sink transactions, has the
committed epochs. Unlike the coordinator's status, both are readable while any process of the job is
dead.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from perseid.topics.chain import Chain, Void
from perseid.topics.records import LedgerRecord, SinkWindow, Token, TokenRecord


@dataclass(frozen=True, slots=True)
class Opened:
    """An opened epoch, with its input records and when it was first seen."""

    epoch: int
    records: int
    seen_s: float
    checkpoint: bool


class Progress:
    """Fed with every record of both logs in offset order, the two in any order to each other.

    `ledgers` are the partitions to expect: an epoch is committed when all of them hold it, or a
    later one. Records of another `job_uuid` are ignored.
    """

    def __init__(self, job_uuid: str, ledgers: Iterable[int]) -> None:
        self._job_uuid = job_uuid
        self._chain = Chain()
        self._opened: dict[int, Opened] = {}
        self._held = dict.fromkeys(ledgers, 0)
        self._windows: dict[int, list[SinkWindow]] = {}
        self._outputs: dict[int, int] = {}
        self._committed_records = 0
        self._committed_epochs = 0
        self._summed_to = 0
        self.generation = 0
        self.void = 0

    @property
    def tip_epoch(self) -> int:
        return self._chain.tip_epoch

    @property
    def committed_epoch(self) -> int:
        return min(self._held.values(), default=0)

    @property
    def committed_records(self) -> int:
        self._sum()
        return self._committed_records

    @property
    def committed_epochs(self) -> int:
        """Committed epochs that had input."""
        self._sum()
        return self._committed_epochs

    @property
    def output_records(self) -> int:
        return sum(self._outputs.values())

    def in_flight(self) -> Opened | None:
        """The lowest epoch with input that is open and not committed."""
        done = self.committed_epoch
        waiting = (o for e, o in self._opened.items() if e > done and o.records)
        return min(waiting, key=lambda o: o.epoch, default=None)

    def last_checkpoint(self) -> int | None:
        """The last committed epoch whose token requested a checkpoint."""
        done = self.committed_epoch
        asked = (e for e, o in self._opened.items() if o.checkpoint and e <= done)
        return max(asked, default=None)

    def windows_above(self, epoch: int) -> list[SinkWindow]:
        """Sink windows of the lowest two epochs above `epoch` that wrote anything."""
        later = sorted(e for e, w in self._windows.items() if e > epoch and w)[:2]
        return [window for e in later for window in self._windows[e]]

    def token_record(self, offset: int, record: TokenRecord, now_s: float) -> None:
        seen = self._chain.feed(offset, record)
        if isinstance(seen, Void):
            self.void += 1
        elif seen.token is not None and seen.token.job_uuid == self._job_uuid:
            self._open(seen.token, now_s)
        elif seen.kind == "rewind":
            tip = self._chain.tip_epoch
            self._opened = {e: o for e, o in self._opened.items() if e <= tip}

    def ledger_record(self, ledger: int, record: LedgerRecord) -> None:
        if record.job_uuid != self._job_uuid or ledger not in self._held:
            return
        self._held[ledger] = max(self._held[ledger], record.epoch)
        self.generation = max(self.generation, record.generation)
        self._windows.setdefault(record.epoch, []).extend(record.outputs)
        count = sum(window.count for window in record.outputs)
        self._outputs[record.epoch] = self._outputs.get(record.epoch, 0) + count

    def _open(self, token: Token, now_s: float) -> None:
        self._opened[token.epoch] = Opened(token.epoch, token.records, now_s, token.checkpoint)

    def _sum(self) -> None:
        # The ledger may be read ahead of the token log; unknown epochs are summed later.
        known = min(self.committed_epoch, max(self._opened, default=0))
        for epoch in range(self._summed_to + 1, known + 1):
            opened = self._opened.get(epoch)
            if opened is not None:
                self._committed_records += opened.records
                self._committed_epochs += bool(opened.records)
        self._summed_to = max(self._summed_to, known)
