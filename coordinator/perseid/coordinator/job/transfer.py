"""A move of fragments of one job to other workers, which waits for a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Transfer:
    """`targets`: by fragment, the worker that gets it; `sources`: that has it.

    It is made once there is a checkpoint above epoch `above`: then the restore is short. `since_s`:
    when it was decided.
    """

    sources: Mapping[str, str]
    targets: Mapping[str, str]
    above: int
    since_s: float
    why: str

    @property
    def text(self) -> str:
        """For users: what moves, and why."""
        moved = ", ".join(
            f"fragment {name} from {self.sources[name]} to {target}"
            for name, target in self.targets.items()
        )
        return f"{moved}: {self.why}"
