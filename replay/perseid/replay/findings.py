"""What an audit has found: the value from which every form of its report is made.

Times in milliseconds since 1970. Every field is JSON's, so a report is the value itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

FORMAT = 1  # of the report; raised with every change that a reader would notice
SAMPLES_MAX = 10  # differences that are shown of one cause

Kind = Literal["value", "missing", "added", "order"]
Verdict = Literal[
    "input_gone", "input_changed", "sink_changed", "not_deterministic", "environment_differs",
    "diverged", "equal",
]  # fmt: skip
EXIT = {"equal": 0, "input_gone": 4, "input_changed": 4}  # of all other verdicts 1
EXIT_REFUSED = 3


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a sink topic. `offset` is None of one that only the audit has made."""

    key: bytes | None
    value: bytes | None
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """One place where the outputs of one epoch of an operator partition differ.

    `position`: within what the epoch wrote to the topic partition. `committed` is None of a record
    that was added, `made` of one that is missing; both are None where only counts and checksums are
    known. `fields`: the names of the columns that differ, if both could be decoded.
    """

    kind: Kind
    operator: str
    partition: int
    epoch: int
    topic: str
    topic_partition: int
    position: int
    committed: Record | None = None
    made: Record | None = None
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cause:
    """Differences of one operator, kind and set of fields. `keys`: how many keys have one.

    `keys_share`: of the keys that were compared of that operator, 0 to 1.
    """

    operator: str
    kind: Kind
    fields: tuple[str, ...]
    first_epoch: int
    epochs: int
    records: int
    keys: int
    keys_share: float
    samples: tuple[Difference, ...] = ()


@dataclass(frozen=True, slots=True)
class Compared:
    """How the outputs of one sink topic were compared.

    `by`: "ledger" (number and checksum of each epoch), "records" where some differed. `in_topic`:
    of how many windows the topic was read, too.
    """

    topic: str
    by: Literal["ledger", "records"]
    records: int
    windows: int
    why: str = ""
    in_topic: int = 0


@dataclass(frozen=True, slots=True)
class Audit:
    """One audit. `revision` made the committed outputs, `audited` is the one that ran again.

    `base`: "checkpoint <epoch>" or "scratch". `reasons`: sentences for users, the first explains
    the verdict. `environment`: of this run, `recorded`: of the revision ({} if unknown).
    `redacted`: keys and values of records are replaced (`perseid.replay.reports.values`).
    """

    job: str
    job_uuid: str
    revision: str
    audited: str
    first_epoch: int
    last_epoch: int
    from_ms: int
    to_ms: int
    base: str
    verdict: Verdict
    reasons: tuple[str, ...]
    compared: tuple[Compared, ...]
    causes: tuple[Cause, ...]
    records_in: int
    epochs: int
    seconds: float
    time_ms: int
    version: str
    environment: dict[str, str] = field(default_factory=dict)
    recorded: dict[str, str] = field(default_factory=dict)
    redacted: bool = False
    format: int = FORMAT

    @property
    def exit_code(self) -> int:
        return EXIT.get(self.verdict, 1)
