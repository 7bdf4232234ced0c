"""Checks what a leader knows of buffers and issues near their bound, by a count of its own.

- Fragments report at least the bytes of the sets that an epoch of theirs has sent.
- Once 80 % of the bound were reported after the oldest kept checkpoint, a token is final, or a
  checkpoint of whole parts without input. Another one may follow two checkpoints in a row only.
- The checkpoint of such a token needs no file of an older one.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from perseid.coordinator import events as ev
from perseid.testing.simulation import job
from perseid.testing.simulation.check import TOKENS
from perseid.testing.simulation.engine import Defect
from perseid.topics import codec
from perseid.topics.records import EpochDone, ProgressRecord, Token

if TYPE_CHECKING:
    from perseid.coordinator.model import JobState
    from perseid.records import CheckpointPointers
    from perseid.testing.simulation.world import World

SHARE = 0.8


class Fullness:
    """Of one leader's life."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._sent: dict[tuple[int, str], Counter[str]] = {}  # by token offset and fragment
        self._epochs: dict[int, int] = {}  # by token offset
        self._whole: set[int] = set()  # epochs of tokens that free buffers

    def hears(self, event: ev.Event) -> None:
        """A leader is about to decide on `event`. Raises Defect."""
        match event:
            case ev.JobLoaded(job=job.JOB, progress=records):
                self._sent.clear()
                for record in records:
                    self._takes(record)
            case ev.ProgressSeen(job=job.JOB, record=record):
                self._takes(record)
                if isinstance(record, EpochDone):
                    self._look_at_sets(record)

    def issues(self, token: Token, before: JobState) -> None:
        """A leader has decided on `token`, which follows `before`. Raises Defect."""
        frees = token.checkpoint and token.whole and not token.records
        if frees:
            self._world.gates.hit("buffers near their bound")
            self._whole.add(token.epoch)
        kept = before.kept[-1].epoch if before.kept else 0
        if token.final or frees:
            return
        back = self._world.checker.tokens_taken_back()
        held: Counter[str] = Counter()
        for (offset, _), sent in self._sent.items():
            if offset not in back and self._epochs[offset] > kept:
                held += sent
        most, limit = max(held.values(), default=0), self._world.shape.buffer_bytes
        if most < SHARE * limit:
            return
        if kept < token.epoch - 2:
            raise Defect(
                f"the token of epoch {token.epoch} is issued while a buffer holds {most} of "
                f"{limit} bytes, which follow the checkpoint of epoch {kept}"
            )
        self._world.gates.hit("epoch above the bound")

    def stores(self, pointers: CheckpointPointers) -> None:
        """A leader has moved the pointers to a checkpoint. Raises Defect."""
        newest = pointers.pointers[0]
        if newest.epoch in self._whole and newest.needs != (newest.epoch,):
            raise Defect(f"the checkpoint of epoch {newest.epoch} needs files of {newest.needs}")

    def _takes(self, record: ProgressRecord) -> None:
        if isinstance(record, EpochDone) and not record.fragment.endswith(".gate"):  # sends nothing
            key = record.token_offset, record.fragment
            self._sent[key] = Counter(record.buffered) | self._sent.get(key, Counter())
            self._epochs[record.token_offset] = record.epoch

    def _look_at_sets(self, record: EpochDone) -> None:
        """Once all fragments have reported the epoch, and its token is there."""
        offset = record.token_offset
        found = self._world.kafka.log(TOKENS, 0).between(offset, offset + 1)
        if not found or found[0].offset != offset:
            return
        token = codec.decode_token(TOKENS, offset, found[0].value or b"")
        reports = {name: sent for (at, name), sent in self._sent.items() if at == offset}
        if not isinstance(token, Token) or len(reports) < len(token.splits):
            return
        reported: Counter[str] = Counter()
        for sent in reports.values():
            reported += sent
        for reader, size in self._world.edges.sent_bytes(offset).items():
            if reported[reader] < size:
                raise Defect(
                    f"epoch {record.epoch}: {size} bytes are in the buffer of {reader}, and its "
                    f"senders have reported {reported[reader]}"
                )
