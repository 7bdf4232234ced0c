"""What is known of a job's token log.

Owns the tip with the tokens that are remembered, whether an append is under way and the events that
came meanwhile, and token time. A token or Rewind counts once its append is answered. The rules of
what is appended: `issue`, `corrections`; of its time: `token_time`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from perseid.coordinator.token_time import NEVER, Time
from perseid.topics.records import EpochDone, EventTimes, FragmentState, Token


@dataclass(frozen=True, slots=True)
class Issued:
    """A valid token and its offset in the token log.

    `stamp_ms`: the log's timestamp since 1970, if the token was read from the log.
    """

    offset: int
    token: Token
    stamp_ms: int = 0


@dataclass(frozen=True, slots=True)
class Tip:
    """The last record of the token chain: a token, or the Begin before the first one."""

    epoch: int
    offset: int


@dataclass(frozen=True, slots=True)
class TokenChain:
    """See the module docstring."""

    base: Tip = Tip(0, -1)  # the tokens below start after it
    tokens: tuple[Issued, ...] = ()
    begun: bool = False  # the chain in the token log is this job UUID's
    highest_epoch: int = 0  # of any record under this name; a Begin is above it
    appending: bool = False  # an append's outcome is not known yet
    deferred: tuple[Any, ...] = ()  # events that came meanwhile
    issued_s: float = 0.0  # when the last token was issued
    time: Time = NEVER  # of its last token, or of its load
    log_time: Time = NEVER  # the broker's clock at its load
    apart_ms: float = 0.0  # how far the wall clock is ahead, as last reported

    @property
    def tip(self) -> Tip:
        last = self.tokens[-1] if self.tokens else None
        return Tip(last.token.epoch, last.offset) if last is not None else self.base

    @property
    def last_token(self) -> Token | None:
        return self.tokens[-1].token if self.tokens else None

    def issued(self, epoch: int) -> Issued | None:
        """The token of `epoch`, if it is remembered. The epochs of a chain have no gaps."""
        if not self.tokens:
            return None
        index = epoch - self.tokens[0].token.epoch
        return self.tokens[index] if 0 <= index < len(self.tokens) else None

    def confirmed(self, record: EpochDone | EventTimes | FragmentState) -> int:
        """The epoch that `record` proves done, or 0: its token may have been rolled back."""
        if isinstance(record, FragmentState):
            known = record.state in ("running", "stopped", "failed", "repeated")
            return record.epoch if known else 0
        issued = self.issued(record.epoch)
        if issued is None:
            return record.epoch if record.epoch <= self.base.epoch else 0
        return record.epoch if issued.offset == record.token_offset else 0

    # -- appends ---------------------------------------------------------------------------------

    def appends(self) -> TokenChain:
        """An append is under way."""
        return replace(self, appending=True)

    def appends_token(self, time: Time) -> TokenChain:
        """The append of a token of that time is under way."""
        return replace(self, appending=True, time=time)

    def lost_track(self) -> TokenChain:
        """What became of an append is read from the log."""
        return replace(self, appending=False)

    def begins(self, epoch: int, offset: int) -> TokenChain:
        """A Begin after `epoch` is in the log."""
        return replace(
            self, appending=False, begun=True, base=Tip(epoch, offset), tokens=(),
            highest_epoch=epoch,
        )  # fmt: skip

    def extended(self, token: Token, offset: int, now_s: float) -> TokenChain:
        """`token` is in the log."""
        tokens = (*self.tokens, Issued(offset, token))
        return replace(self, appending=False, tokens=tokens, issued_s=now_s)

    def rewound(self, epoch: int, time: Time) -> TokenChain:
        """A Rewind to `epoch` is in the log; `time` follows from the tokens that stay."""
        return replace(self, appending=False, tokens=self.up_to(epoch).tokens, time=time)

    def up_to(self, epoch: int) -> TokenChain:
        return replace(self, tokens=tuple(i for i in self.tokens if i.token.epoch <= epoch))

    def trimmed(self, oldest_epoch: int) -> TokenChain:
        """Without the tokens below `oldest_epoch`, which nothing needs any more."""
        return replace(self, tokens=tuple(i for i in self.tokens if i.token.epoch >= oldest_epoch))

    # -- events that wait for the outcome of an append -------------------------------------------

    def defers(self, event: Any) -> TokenChain:
        return replace(self, deferred=(*self.deferred, event))

    def without_deferred(self) -> TokenChain:
        return replace(self, deferred=())

    # -- clocks ----------------------------------------------------------------------------------

    def clock_is_ahead(self, apart_ms: float) -> TokenChain:
        return replace(self, apart_ms=apart_ms)
