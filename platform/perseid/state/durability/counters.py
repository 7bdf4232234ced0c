"""Live divergence counters of approximate jobs: shown to users, and a hint at a takeover.

The authoritative divergence is stored with the state and its backups. A counter may be missing,
come from an earlier life, or have gone back in time after a failover of Redis. So it is stamped,
and `judge` uses it to lower trust, never to raise it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from perseid.errors import DamagedFile, UsageError

STAMP_MAX = 2**63 - 1  # generations and sequences have 64 bits
TEXT_CHARACTERS_MAX = 80  # of a stored counter: two stamps and a number need at most 63
_TEXT = re.compile(r"(\d{1,19}) (\d{1,19}) (\d[\d.e+-]{0,24})")


@dataclass(frozen=True, slots=True)
class CounterKey:
    """The operator partition of a counter. The three names are those of a job.yaml."""

    job: str
    operator: str
    partition: int


@dataclass(frozen=True, slots=True)
class Divergence:
    """An absolute value, never an increment; `sequence` increases within a generation."""

    generation: int
    sequence: int
    value: float

    def __post_init__(self) -> None:
        for name, number in (("generation", self.generation), ("sequence", self.sequence)):
            if not 0 <= number <= STAMP_MAX:
                raise UsageError(f"divergence with {name} {number}: expected 0 to {STAMP_MAX}")
        if not (math.isfinite(self.value) and self.value >= 0):
            raise UsageError(f"divergence {self.value}: expected a finite number, 0 or more")

    @property
    def stamp(self) -> tuple[int, int]:
        return self.generation, self.sequence


class Counters(Protocol):
    """Where counters are published. RetryableError while the service does not answer."""

    def publish(self, key: CounterKey, divergence: Divergence) -> bool:
        """False when the stored counter has the same stamp or a newer one: it never goes back."""
        ...

    def read(self, key: CounterKey) -> Divergence | None:
        """None when there is none. DamagedFile for a text that is no counter; never a zero."""
        ...

    def close(self) -> None: ...


class Standing(Enum):
    """The quality of a counter. STALE: older than what its reader knows for certain."""

    CURRENT = "current"
    STALE = "stale"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class Hint:
    """What the reader uses: `divergence` is never below what it knew."""

    standing: Standing
    divergence: float
    back_up_first: bool


def judge(known: Divergence, read: Divergence | None) -> Hint:
    """Compares the counter with the state and the last acknowledged backup.

    Unless the counter is current, the previous owner's divergence is unknown: back up before the
    next batch. A current counter is used if it is higher than the known value.

    >>> judge(Divergence(2, 7, 3.0), None)
    Hint(standing=<Standing.ABSENT: 'absent'>, divergence=3.0, back_up_first=True)
    >>> judge(Divergence(2, 7, 3.0), Divergence(2, 9, 0.5))
    Hint(standing=<Standing.CURRENT: 'current'>, divergence=3.0, back_up_first=False)
    """
    if read is None:
        return Hint(Standing.ABSENT, known.value, back_up_first=True)
    if read.stamp < known.stamp:
        return Hint(Standing.STALE, known.value, back_up_first=True)
    more = read.value > known.value
    return Hint(Standing.CURRENT, max(known.value, read.value), back_up_first=more)


def encode(divergence: Divergence) -> str:
    return f"{divergence.generation} {divergence.sequence} {float(divergence.value)!r}"


def decode(text: str, where: str) -> Divergence:
    """The counter in `text`, or DamagedFile naming `where`, since the text is external."""
    found = _TEXT.fullmatch(text) if len(text) <= TEXT_CHARACTERS_MAX else None
    try:
        if found is not None:
            return Divergence(int(found[1]), int(found[2]), float(found[3]))
    except (ValueError, UsageError):
        pass
    raise DamagedFile(
        f"{where} holds {text[:TEXT_CHARACTERS_MAX]!r}, which is no divergence counter: expected "
        "generation, sequence and a number of 0 or more"
    )
