"""The control records of a job, which coordinator and workers exchange through Kafka.

Each is a frozen dataclass; `perseid.topics.codec` converts it to Avro and back. Epochs, generations
and layouts only ever rise; a job UUID is new whenever a job is created. `fragment`: the id of the
reporting fragment in its plan; parts and ledger records name their operator partition instead.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from perseid.records import WHOLE, PartFile


@dataclass(frozen=True, slots=True)
class SourceRange:
    """Offsets [start, end) of one source partition. `topic_id` is Kafka's topic UUID."""

    source: str
    topic: str
    topic_id: str
    partition: int
    start: int
    end: int


Split = tuple[SourceRange, ...]  # what one source task reads, in this order


@dataclass(frozen=True, slots=True)
class InputCheck:
    """Count and CRC-32 of what an earlier epoch's split read of one source, for a replay."""

    epoch: int
    split: int
    source: str
    count: int
    crc: int


@dataclass(frozen=True, slots=True)
class Begin:
    """Opens the token chain of a new job UUID; its first token has epoch `epoch` + 1."""

    coordinator_epoch: int
    job_uuid: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Claim:
    """A new leader's first record: later records of a lower coordinator epoch are void."""

    coordinator_epoch: int
    leader: str


@dataclass(frozen=True, slots=True)
class Rewind:
    """Rolls back the tokens above `epoch`, which no ledger holds, so that they can be issued again.

    `previous_offset` is the log offset of the token of `epoch` (or of the Begin).
    """

    coordinator_epoch: int
    job_uuid: str
    epoch: int
    previous_offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class Token:
    """Opens one epoch (Meteor Shower's token; architecture.md section 7).

    `previous_offset`: the log offset of the previous token (or Begin or Rewind target). `time_ms`
    and `watermark_ms` (both since 1970) never fall below the previous token's. `final`: the last
    epoch of this revision. `generation`: of the plan that it was issued under; an owner of a lower
    one must not run it. `whole`: the parts of its checkpoint build on no earlier one.
    """

    coordinator_epoch: int
    job_uuid: str
    epoch: int
    previous_offset: int
    revision: str
    layout: int
    splits: tuple[Split, ...]
    time_ms: int
    watermark_ms: int | None = None
    checkpoint: bool = False
    final: bool = False
    checks: tuple[InputCheck, ...] = ()
    generation: int = 0
    whole: bool = False

    @property
    def records(self) -> int:
        """How many offsets the splits name, including markers and aborted records."""
        return sum(r.end - r.start for split in self.splits for r in split)


TokenRecord = Begin | Claim | Rewind | Token


@dataclass(frozen=True, slots=True)
class OperatorState:
    """The state of all of an operator's partitions, and what one epoch changed of it.

    `bytes` is the primitives' estimate, `changed_bytes` the size of the epoch's deltas.
    """

    operator: str
    bytes: int
    changed_bytes: int


@dataclass(frozen=True, slots=True)
class EpochDone:
    """A worker ran one epoch: every partition's state is logged and every sink committed.

    `bytes_in`: by source, the bytes of the values that `checks` counts. `buffered`: the bytes
    that a fragment has sent to buffer topics, by the operator that reads them.
    """

    job_uuid: str
    generation: int
    incarnation: str
    epoch: int
    token_offset: int
    rows_in: int
    rows_out: int
    duration_ms: int
    stage_ms: dict[str, int] = field(default_factory=dict)
    state_bytes: int = 0
    state_rows: int = 0
    dead_letters: int = 0
    checks: tuple[InputCheck, ...] = ()
    states: tuple[OperatorState, ...] = ()
    bytes_in: dict[str, int] = field(default_factory=dict)
    fragment: str = WHOLE
    buffered: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartDone:
    """One checkpoint part is durable in the store. `path` is relative to the store's root.

    `chain`: the files of earlier checkpoints that the part is based on, the full one first; empty
    for a full part.
    """

    job_uuid: str
    generation: int
    epoch: int
    layout: int
    operator: str
    partition: int
    path: str
    bytes: int
    crc: int
    seconds: float
    chain: tuple[PartFile, ...] = ()


@dataclass(frozen=True, slots=True)
class PartFailed:
    """A checkpoint part could not be written; the checkpoint of `epoch` will not complete."""

    job_uuid: str
    generation: int
    epoch: int
    operator: str
    partition: int
    reason: str


@dataclass(frozen=True, slots=True)
class EpochsEqual:
    """Of a gate: so many `epochs` with outputs were equal to those of the running revision.

    `generation`: that of the gate, which no other fragment has.
    """

    job_uuid: str
    generation: int
    epochs: int


@dataclass(frozen=True, slots=True)
class FragmentState:
    """A fragment's state as its worker sees it.

    `state`: "restoring" | "running" | "warning" | "stopped" | "failed"; "warning" is no state of
    its own, it only carries `events` for users. `epoch`: the last done one. `error_kind`: a class
    name of perseid.errors; `permanent` failures stop the job. `restored_from`: "log",
    "checkpoint:<epoch>" or "scratch", with rows, bytes and their rates.
    """

    job_uuid: str
    generation: int
    incarnation: str
    state: str
    epoch: int
    error_kind: str = ""
    error: str = ""
    permanent: bool = False
    restored_from: str = ""
    events: tuple[str, ...] = ()
    fragment: str = WHOLE


@dataclass(frozen=True, slots=True)
class EventTime:
    """The largest event time, in milliseconds since 1970, of what was read of one partition."""

    source: str
    partition: int
    max_ms: int


@dataclass(frozen=True, slots=True)
class EventTimes:
    """The event times of one epoch. Written before its EpochDone, and again after a restore.

    `late`: rows below the token's watermark, whether dropped or not.
    """

    job_uuid: str
    generation: int
    epoch: int
    token_offset: int
    late: int
    times: tuple[EventTime, ...]
    fragment: str = WHOLE


ProgressRecord = EpochDone | EpochsEqual | EventTimes | PartDone | PartFailed | FragmentState


@dataclass(frozen=True, slots=True)
class SinkWindow:
    """What one epoch of one operator partition wrote to one topic partition.

    `checksum` is 2**63 plus the CRC-32 of the records in the order of their offsets: of the values'
    lengths (int32, little endian), then all keys, then all values.
    """

    topic: str
    partition: int
    first: int
    last: int
    count: int
    checksum: int

    def spans(self, offset: int) -> bool:
        """Whether the offset is within; its record may be of another writer."""
        return self.first <= offset <= self.last


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """Written only inside a sink transaction: this (operator, partition) has committed `epoch`.

    `environment`: of the process that has written this record and those after it up to the next one
    that has some (`worker.process.environment`); {} of all others.
    """

    job_uuid: str
    layout: int
    operator: str
    partition: int
    generation: int
    epoch: int
    token_offset: int
    outputs: tuple[SinkWindow, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BufferRecord:
    """A part of what one task of a sender sends one operator partition in an epoch: of a *set*.

    The records of a set are of one `attempt` and have all but `chunk` and `data` in common.
    `chunk`: 0 to `chunks` - 1. `rows_crc`: of the rows of the whole set, however they are encoded
    (`state.primitives.content`). `data`: a part of the set's bytes (`buffers.packed`).
    """

    job_uuid: str
    revision: str
    layout: int
    epoch: int
    token_offset: int
    input: int
    origin: int
    generation: int
    attempt: int
    chunk: int
    chunks: int
    rows_crc: int
    data: bytes


@dataclass(frozen=True, slots=True)
class RedrivenLetter:
    """The dead letter at (`partition`, `offset`), and where its record went.

    The record is in `to_partition` of `topic`, between the offsets `first` and `last`.
    """

    partition: int
    offset: int
    topic: str
    to_partition: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Redriven:
    """Written only in the transaction that redrives `letters` of the dead-letter topic `topic`.

    `transform`: the name of the user's function that corrected them; empty without one.
    """

    topic: str
    topic_id: str
    time_ms: int
    transform: str
    letters: tuple[RedrivenLetter, ...]
