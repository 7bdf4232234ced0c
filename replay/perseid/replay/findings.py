"""What an audit has found: the value from which every form of its report is made.

Times in milliseconds since 1970. Every field is JSON's, so a report is the value itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

FORMAT = 2  # of the report; raised with every change that a reader would notice
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
    """One place where the outputs of one epoch of an operator partition differ, or its state.

    `position`: within what the epoch wrote to the topic partition. `committed` is None of a record
    that was added, `made` of one that is missing; both are None where only counts and checksums are
    known. `fields`: the names of the columns that differ, if both could be decoded.
    `state`: the primitive whose entry differs from the checkpoint of `epoch`, "" of an output; an
    entry is a record with the key as text and the other columns as JSON, in no topic.
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
    state: str = ""


@dataclass(frozen=True, slots=True)
class Cause:
    """Differences of one operator, kind and set of fields. `keys`: how many keys have one.

    `keys_share`: of the keys that were compared of that operator, 0 to 1. `state`: as of a
    difference; its epochs are those of checkpoints, and its keys are entries.
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
    state: str = ""


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
class ComparedState:
    """How the state was compared with the checkpoint of `epoch`.

    `partitions`: operator partitions that were compared, `entries`: those of the checkpoint in
    them. `differing`: entries that differ, are missing or were added. `why`: what was not compared.
    """

    epoch: int
    partitions: int
    entries: int
    differing: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """One interval between checkpoints that a bisection ran; `epochs`: how many it took."""

    first_epoch: int
    last_epoch: int
    verdict: Verdict
    epochs: int


@dataclass(frozen=True, slots=True)
class Bisection:
    """A search for the first interval between checkpoints that differs, in a range of epochs.

    `steps`: in the order in which they ran, of `intervals`. `differs_from`: the first epoch whose
    outputs differ; None if none does, or the state alone. `presumed`: the intervals that were taken
    for equal and did not run, as FIRST:LAST.
    """

    first_epoch: int
    last_epoch: int
    intervals: int
    steps: tuple[Step, ...]
    differs_from: int | None
    presumed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Audit:
    """One audit. `revision` made the committed outputs, `audited` is the one that ran again.

    `archive`: the SHA-256 of the audited files.
    `base`: "checkpoint <epoch>" or "scratch". `reasons`: sentences for users, the first explains
    the verdict. `environment`: of this run, `recorded`: of the revision ({} if unknown).
    `states`: for each checkpoint in the range. `bisection`: the search whose last word it is.
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
    states: tuple[ComparedState, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    recorded: dict[str, str] = field(default_factory=dict)
    redacted: bool = False
    bisection: Bisection | None = None
    archive: str = ""
    format: int = FORMAT

    @property
    def exit_code(self) -> int:
        return EXIT.get(self.verdict, 1)
