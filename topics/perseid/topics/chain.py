"""Which records of a token log are valid: a pure state machine, the same for every reader.

The token log protects itself. Two coordinators may both write to it for a while (one of them paused
or cut off), and an append whose answer was lost may be in it or not. So only the earlier records in
the log decide whether a record is valid:

1. A record of a lower coordinator epoch than an earlier valid record is void. A new leader's first
   record is a Claim, which raises the epoch and so shuts out the old leader from there on.
2. A Begin opens the chain of a job UUID: the tip is the Begin itself. Epochs never restart, so its
   epoch is not below the tip's.
3. A Token extends the chain if it has the chain's job UUID, has the tip's epoch + 1, names the
   tip's offset as the previous one, and its time is not below that of the previous record.
4. A Rewind moves the tip back to an earlier token, whose epoch and offset it names. Its target is
   not looked up: only the holder of the highest claim, who has read the log, can write a valid one.

No rule needs more than the tip, so a reader that starts at any record of the chain, given as the
base, sees exactly what a reader from the log's first record sees from there on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from perseid.errors import PermanentError
from perseid.topics.records import Begin, Claim, Rewind, Token, TokenRecord

Kind = Literal["claim", "begin", "token", "rewind", "base"]


@dataclass(frozen=True, slots=True)
class Accepted:
    """A valid record. `token` is set for kind "token", and for "base" if that is a token."""

    kind: Kind
    offset: int
    token: Token | None = None


@dataclass(frozen=True, slots=True)
class Void:
    """A record that is not valid; `reason` is for people."""

    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class Base:
    """A Begin or Token that is known to be valid: where a reader starts."""

    job_uuid: str
    epoch: int
    offset: int


class Chain:
    """Takes every record of a token log in offset order, from the base on.

    Without a base the log must be complete from its first record; a trimmed log is read from a
    base.
    """

    def __init__(self, base: Base | None = None) -> None:
        self._base = base
        self.coordinator_epoch = 0
        self.job_uuid = ""
        self.tip_epoch = 0
        self.tip_offset = -1
        self.time_ms = 0

    def feed(self, offset: int, record: TokenRecord) -> Accepted | Void:
        """Whether the record is valid; raises PermanentError if the base has changed."""
        if self._base is not None:
            return self._start(self._base, offset, record)
        if record.coordinator_epoch < self.coordinator_epoch:
            return Void(
                offset,
                f"{type(record).__name__} of coordinator epoch {record.coordinator_epoch} after "
                f"one of {self.coordinator_epoch}",
            )
        match record:
            case Claim():
                fault = ""
            case Begin():
                fault = self._begin(offset, record)
            case Token():
                fault = self._extend(offset, record)
            case Rewind():
                fault = self._rewind(record)
        if fault:
            return Void(offset, f"{type(record).__name__} of epoch {_epoch(record)}: {fault}")
        self.coordinator_epoch = record.coordinator_epoch
        return _accepted(offset, record)

    def _start(self, base: Base, offset: int, record: TokenRecord) -> Accepted | Void:
        if offset < base.offset:
            return Void(offset, f"before the base at offset {base.offset}")
        if (
            offset != base.offset
            or not isinstance(record, Begin | Token)
            or (record.job_uuid, record.epoch) != (base.job_uuid, base.epoch)
        ):
            raise PermanentError(
                f"token log at offset {offset} has {type(record).__name__} of epoch "
                f"{_epoch(record)}, expected epoch {base.epoch} of job {base.job_uuid} at offset "
                f"{base.offset}: the log was trimmed or the topic created again; start the job "
                "over with `perseid jobs start JOB --from scratch`"
            )
        self._base = None
        self.coordinator_epoch = record.coordinator_epoch
        self.job_uuid, self.tip_epoch, self.tip_offset = base.job_uuid, base.epoch, base.offset
        self.time_ms = record.time_ms if isinstance(record, Token) else 0
        return Accepted("base", offset, record if isinstance(record, Token) else None)

    def _begin(self, offset: int, begin: Begin) -> str:
        if begin.epoch < self.tip_epoch:
            return f"epochs never restart, and the last one is {self.tip_epoch}"
        self.job_uuid, self.tip_epoch, self.tip_offset = begin.job_uuid, begin.epoch, offset
        self.time_ms = 0
        return ""

    def _extend(self, offset: int, token: Token) -> str:
        if token.job_uuid != self.job_uuid:
            return f"it is of job {token.job_uuid}, the chain is of {self.job_uuid or 'none'}"
        if (token.epoch, token.previous_offset) != (self.tip_epoch + 1, self.tip_offset):
            return (
                f"it follows offset {token.previous_offset}, the chain ends with epoch "
                f"{self.tip_epoch} at offset {self.tip_offset}"
            )
        if token.time_ms < self.time_ms:
            return f"its time {token.time_ms} is below {self.time_ms}"
        self.tip_epoch, self.tip_offset, self.time_ms = token.epoch, offset, token.time_ms
        return ""

    def _rewind(self, rewind: Rewind) -> str:
        if rewind.job_uuid != self.job_uuid:
            return f"it is of job {rewind.job_uuid}, the chain is of {self.job_uuid or 'none'}"
        here, there = (self.tip_epoch, self.tip_offset), (rewind.epoch, rewind.previous_offset)
        # Epochs rise with offsets along a chain, so either both equal the tip's or both are lower.
        if here != there and not (there[0] < here[0] and there[1] < here[1]):
            return f"its target {there} is not on the chain that ends with {here}"
        self.tip_epoch, self.tip_offset = there
        self.time_ms = 0  # a wrong clock may have set the time of the rolled-back tokens
        return ""


def valid_tokens(chain: Chain, entries: Iterable[tuple[int, TokenRecord]]) -> dict[int, Token]:
    """Feeds `entries`; returns the tokens that remain after all rewinds, by offset in order."""
    kept: dict[int, Token] = {}
    for offset, record in entries:
        seen = chain.feed(offset, record)
        if isinstance(seen, Void):
            continue
        if seen.kind == "token" and seen.token is not None:
            kept[offset] = seen.token
        elif seen.kind == "rewind":
            kept = {o: t for o, t in kept.items() if o <= chain.tip_offset}
        elif seen.kind == "begin":
            kept.clear()
    return kept


def counted(base: Base, entries: Iterable[tuple[int, TokenRecord]]) -> Iterator[Token]:
    """The tokens from the base on that are valid or were until a Rewind, in log order."""
    chain = Chain(base)
    for offset, record in entries:
        seen = chain.feed(offset, record)
        if isinstance(seen, Accepted) and seen.token is not None:
            yield seen.token


def _accepted(offset: int, record: TokenRecord) -> Accepted:
    match record:
        case Claim():
            return Accepted("claim", offset)
        case Begin():
            return Accepted("begin", offset)
        case Rewind():
            return Accepted("rewind", offset)
        case Token():
            return Accepted("token", offset, record)


def _epoch(record: TokenRecord) -> int:
    return record.coordinator_epoch if isinstance(record, Claim) else record.epoch
