"""What a verifier found, in the four ways in which a stream's output can be wrong."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

EXAMPLES_MAX = 20  # enough to see a pattern; a broken run would otherwise fill the terminal


@dataclass(frozen=True, slots=True)
class Verdict:
    """Counts of faults; `ok` when there are none.

    lost        input that the output does not show
    duplicated  output that repeats what was already sent
    reordered   output older than what was sent before it under the same key
    wrong       output that no input explains
    """

    lost: int
    duplicated: int
    reordered: int
    wrong: int
    records: int
    output_records: int
    examples: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not (self.lost or self.duplicated or self.reordered or self.wrong)

    @property
    def totals_right(self) -> bool:
        """Whether the last count of every key is right, the criterion for at-least-once output."""
        return not (self.lost or self.wrong)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "examples": list(self.examples)}


class Tally:
    """Counts faults by kind and keeps the first few as text."""

    def __init__(self) -> None:
        self.counts = {"lost": 0, "duplicated": 0, "reordered": 0, "wrong": 0}
        self.records = 0
        self.output_records = 0
        self._examples: list[str] = []

    def add(self, kind: str, text: str, times: int = 1) -> None:
        self.counts[kind] += times
        if len(self._examples) < EXAMPLES_MAX:
            self._examples.append(f"{kind}: {text}")

    def verdict(self) -> Verdict:
        return Verdict(
            **self.counts,
            records=self.records,
            output_records=self.output_records,
            examples=tuple(self._examples),
        )
