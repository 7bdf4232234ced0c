"""Which epochs a fragment runs: turns records of the token log into epoch orders. Pure.

Validity is a property of the token log: `Chain` decides it, here as everywhere. A fragment runs the
valid tokens above the epoch from which it resumes, each once, in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from perseid.engine.order import EpochOrder
from perseid.errors import FencedError
from perseid.records import Plan
from perseid.topics import names
from perseid.topics.chain import Accepted, Base, Chain, Void
from perseid.topics.codec import decode_token
from perseid.topics.records import InputCheck, Token, TokenRecord

if TYPE_CHECKING:
    from perseid.topics.admin import TopicReader
    from perseid.topics.log import LogReader

READ_TIMEOUT_S = 30.0  # of the token log: longer than a broker needs to restart


@dataclass(frozen=True)
class TokenHistory:
    """The valid tokens after a base that the log held when it was read.

    `offsets`: epoch -> offset, the base's too. `checks`: the input of earlier runs, by epoch.
    `end`: the offset after the last record that was read. `rewound_at`: offset of the last Rewind,
    -1 without one.
    """

    base: Base
    offsets: Mapping[int, int]
    checks: Mapping[int, tuple[InputCheck, ...]]
    end: int
    rewound_at: int = -1

    @property
    def tip_epoch(self) -> int:
        return max(self.offsets)

    @property
    def taken_back_below(self) -> int:
        """A token below this offset that is not among `offsets` may have been rolled back."""
        return max(self.base.offset, self.rewound_at)

    def base_at(self, epoch: int) -> Base:
        """A base for readers that resume after `epoch`, which must be on the chain."""
        return Base(job_uuid=self.base.job_uuid, epoch=epoch, offset=self.offsets[epoch])


def base_of(plan: Plan) -> Base:
    """Where to read the token log from: the plan's oldest usable checkpoint, else its own base."""
    if not plan.usable_checkpoints:
        return Base(plan.job_uuid, plan.base_epoch, plan.base_offset)
    oldest = plan.usable_checkpoints[-1]
    return Base(plan.job_uuid, oldest.epoch, oldest.token_offset)


def history(base: Base, entries: Iterable[tuple[int, TokenRecord]]) -> TokenHistory:
    """Reads the log from `base` on; a rewind removes the tokens that it rolls back."""
    chain = Chain(base)
    offsets = {base.epoch: base.offset}
    checks: dict[int, tuple[InputCheck, ...]] = {}
    end, rewound_at = base.offset, -1
    for offset, record in entries:
        end = offset + 1
        seen = chain.feed(offset, record)
        if isinstance(seen, Void):
            continue
        if seen.kind == "token" and seen.token is not None:
            offsets[seen.token.epoch] = offset
            _remember(checks, seen.token)
        elif seen.kind == "rewind":
            rewound_at = offset
            offsets = {e: o for e, o in offsets.items() if e <= chain.tip_epoch}
            checks = {e: c for e, c in checks.items() if e <= chain.tip_epoch}
    return TokenHistory(base, offsets, checks, end, rewound_at)


def read_history(plan: Plan, tokens: LogReader, topics: TopicReader) -> TokenHistory:
    """What the token log holds now, from the plan's base on."""
    return history_since(base_of(plan), plan.job, tokens, topics)


def history_since(base: Base, job: str, tokens: LogReader, topics: TopicReader) -> TokenHistory:
    """What the token log holds now, from `base` on."""
    topic = names.tokens(job)
    end = topics.ends([(topic, 0)])[topic, 0]
    found = tokens.read_range(topic, 0, base.offset, end, timeout_s=READ_TIMEOUT_S)
    return history(base, ((e.offset, decode_token(topic, e.offset, e.value)) for e in found))


class EpochFeed:
    """Turns each record of the log into an order, or None when there is nothing to run.

    It reads a part of the history again, so it knows in advance which tokens of that part a later
    rewind rolls back: those never run.
    """

    def __init__(
        self, past: TokenHistory, done_epoch: int, layout: int, generation: int,
        replicates: str | None = None,
    ) -> None:  # fmt: skip
        """`replicates`: the revision of a replica, whose orders are muted."""
        self._past, self._layout, self._generation = past, layout, generation
        self._replicates = replicates
        self._chain = Chain(past.base_at(done_epoch))
        self._checks = dict(past.checks)
        self.done_epoch = done_epoch
        self.start_offset = past.offsets[done_epoch]

    def feed(
        self, offset: int, record: TokenRecord, collect_epoch: int | None
    ) -> EpochOrder | None:
        """The order for this record.

        Logs are collected up to an epoch that all partitions have passed. A partition that was
        restored from before the newest complete checkpoints first catches up; meanwhile it makes no
        checkpoint parts (they are not needed, and collection could remove their log files).
        FencedError when tokens of this feed were rolled back, or a token belongs to another plan:
        its code may be another revision's, and its transactional ids another layout's.
        """
        seen = self._chain.feed(offset, record)
        if isinstance(seen, Void) or seen.kind in {"claim", "base"}:
            return None
        if offset < self._past.end and not self._still_counts(offset, seen):
            return None
        if seen.kind != "token" or seen.token is None:
            raise FencedError(
                f"the token log has a {seen.kind} at offset {offset}: this fragment's plan is over"
            )
        token = seen.token
        if self._replicates is not None:
            self._refuse_other_revision(token)
        elif token.layout != self._layout or token.generation > self._generation:
            raise FencedError(
                f"the token of epoch {token.epoch} is of layout {token.layout} and generation "
                f"{token.generation}, and this fragment runs layout {self._layout} in generation "
                f"{self._generation}: its plan is over"
            )
        _remember(self._checks, token)
        known = self._checks.get(token.epoch, ())
        if collect_epoch is not None and collect_epoch >= token.epoch:
            collect_epoch = None
            token = replace(token, checkpoint=False)
        return EpochOrder(
            replace(token, checks=known), offset, collect_epoch, generation=self._generation,
            muted=self._replicates is not None,
        )  # fmt: skip

    def _refuse_other_revision(self, token: Token) -> None:
        """A primary that was placed again ends no replica, another revision or layout does."""
        if (token.layout, token.revision) != (self._layout, self._replicates):
            raise FencedError(
                f"the token of epoch {token.epoch} is of layout {token.layout} and revision "
                f"{token.revision}, and this replica runs layout {self._layout} of "
                f"{self._replicates}: its plan is over"
            )

    def _still_counts(self, offset: int, seen: Accepted) -> bool:
        """Whether a record of the history is a token that no later record has rolled back."""
        return seen.token is not None and self._past.offsets.get(seen.token.epoch) == offset

    def done(self, epoch: int) -> None:
        """Records that the epoch has run: its state is logged and its outputs are committed."""
        self.done_epoch = epoch
        self._checks.pop(epoch, None)


def _remember(checks: dict[int, tuple[InputCheck, ...]], token: Token) -> None:
    for check in token.checks:
        others = tuple(c for c in checks.get(check.epoch, ()) if c != check)
        checks[check.epoch] = (*others, check)
