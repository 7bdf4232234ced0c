"""What is known of a change of revision, and of the correction of a failed one.

Owns the program that is to follow (its load, its refusal) and the epoch that a rewind leads to.
The rules of a change: `switching`, `corrections`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from perseid.coordinator.job.positions import Positions
from perseid.coordinator.job.program import Program

LOAD_AGAIN_S = 1.0  # after a load that failed


@dataclass(frozen=True, slots=True)
class Switch:
    """See the module docstring."""

    target: Program | None = None  # once it is loaded
    starts: Positions = field(default_factory=dict)  # of sources that only `target` has
    loading: bool = False
    load_again_s: float = 0.0  # not loaded again before
    rejected: str = ""  # the archive that cannot be loaded
    rewind_to: int | None = None  # the epoch to rewind the chain to before resuming

    def target_of(self, archive: str) -> Program | None:
        """The loaded program, if it is that of `archive`."""
        target = self.target
        return target if target is not None and target.archive == archive else None

    def may_load(self, now_s: float) -> bool:
        return not self.loading and now_s >= self.load_again_s

    def load_begun(self) -> Switch:
        return replace(self, loading=True, target=None)

    def loaded(self, target: Program, starts: Positions) -> Switch:
        return replace(self, loading=False, target=target, starts=starts)

    def load_failed(self, now_s: float) -> Switch:
        return replace(self, loading=False, load_again_s=now_s + LOAD_AGAIN_S)

    def refused(self, archive: str) -> Switch:
        """`archive` will not be loaded again."""
        return replace(self, rejected=archive)

    def entry_changed(self) -> Switch:
        """The user may want something else now: what was refused counts no more."""
        return replace(self, rejected="", load_again_s=0.0)

    def dropped(self) -> Switch:
        """The loaded program does not follow; it is loaded again when it is needed."""
        return replace(self, target=None)

    def completed(self) -> Switch:
        """The target is in the plan."""
        return replace(self, target=None, starts={})

    def to_rewind(self, epoch: int) -> Switch:
        """A failure above `epoch` waits for its correction."""
        return replace(self, rewind_to=epoch)

    def rewind_over(self) -> Switch:
        """The failure is handled, or does not matter any more."""
        return replace(self, rewind_to=None)
