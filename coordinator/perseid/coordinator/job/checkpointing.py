"""What is known of a job's checkpoints.

Owns the kept ones, the one that is being collected with its parts, the moment of the next one, what
the store refused, and the trims of the logs that a complete one allows. The rules: `checkpoints`,
`timing`, `trimming`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from perseid.coordinator.planners.live_timing import Timing
from perseid.records import CheckpointPointer, CheckpointPointers
from perseid.topics.records import PartDone

PartKey = tuple[int, str, int]  # generation, operator, partition


@dataclass(frozen=True, slots=True)
class Collecting:
    """A checkpoint that is being collected. Its parts, which may be of several generations."""

    epoch: int
    token_offset: int
    since_s: float
    parts: Mapping[PartKey, PartDone] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Checkpointing:
    """See the module docstring."""

    pointers: CheckpointPointers | None = None
    collecting: Collecting | None = None
    ready: bool = False  # the manifest of the collected one is being written
    begun_s: float = 0.0  # when the last checkpoint token was issued
    timing: Timing | None = None  # if the moment of the next one depends on size
    unwritten: int = 0  # checkpoints in a row that the store did not accept
    again_s: float = 0.0  # none begins before, for that reason
    state_bytes: int = 0  # after the last done epoch
    trimmed_s: float = float("-inf")  # when token log and ledger were last trimmed
    untrimmed: int = 0  # failed trims in a row

    def kept(self, job_uuid: str) -> tuple[CheckpointPointer, ...]:
        """The complete checkpoints of this job UUID, the newest one first."""
        ours = self.pointers is not None and self.pointers.job_uuid == job_uuid
        return self.pointers.pointers if ours and self.pointers is not None else ()

    def may_begin(self, now_s: float) -> bool:
        """False while one is being collected, and for a delay after the store refused one."""
        return self.collecting is None and now_s >= self.again_s

    def began(self, now_s: float, timing: Timing | None) -> Checkpointing:
        """A checkpoint token was issued."""
        return replace(self, begun_s=now_s, timing=timing)

    def collects(
        self, epoch: int, token_offset: int, now_s: float,
        parts: Mapping[PartKey, PartDone] | None = None,
    ) -> Checkpointing:  # fmt: skip
        collecting = Collecting(epoch, token_offset, now_s, parts or {})
        return replace(self, collecting=collecting, ready=False)

    def with_part(self, part: PartDone) -> Checkpointing:
        """With another part, if a checkpoint is being collected."""
        if self.collecting is None:
            return self
        key = (part.generation, part.operator, part.partition)
        parts = {**self.collecting.parts, key: part}
        return replace(self, collecting=replace(self.collecting, parts=parts))

    def being_stored(self) -> Checkpointing:
        """Nothing is missing: the manifest is being written."""
        return replace(self, ready=True)

    def dropped(self) -> Checkpointing:
        """Nothing is being collected."""
        return replace(self, collecting=None, ready=False)

    def owed(self, timing: Timing | None) -> Checkpointing:
        """The next token that can takes a checkpoint."""
        return replace(self, begun_s=float("-inf"), timing=timing)

    def refused(self, again_s: float) -> Checkpointing:
        """The store did not accept one; the next one begins at `again_s` or later."""
        return replace(self, unwritten=self.unwritten + 1, again_s=again_s)

    def stored(self, pointers: CheckpointPointers) -> Checkpointing:
        """The collected one is complete."""
        return replace(self.dropped(), pointers=pointers, unwritten=0, again_s=0.0)

    def timed(self, timing: Timing | None) -> Checkpointing:
        return replace(self, timing=timing)

    def measured(self, state_bytes: int) -> Checkpointing:
        return replace(self, state_bytes=state_bytes)

    def trims(self, now_s: float) -> Checkpointing:
        return replace(self, trimmed_s=now_s)

    def trim_ended(self, *, failed: bool) -> Checkpointing:
        return replace(self, untrimmed=self.untrimmed + 1 if failed else 0)
