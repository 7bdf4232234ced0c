"""What the driver of a fragment sends to the tasks of one epoch."""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from functools import lru_cache

import orjson

from perseid.topics import codec
from perseid.topics.records import InputCheck, Token

MUTED = 0  # in the log of an operator partition, the generation of an epoch that a replica ran


@dataclass(frozen=True)
class EpochOrder:
    """What changes from epoch to epoch: the token and up to which epoch logs may be collected.

    `token`: the log's, except for `checks` and `checkpoint` (`feed.EpochFeed`). `base`: the
    manifest on which a checkpoint of this epoch may build (`checkpoints.base_of`). `generation`:
    under which it is logged and committed. `muted`: a replica's, which is logged only.
    """

    token: Token
    token_offset: int
    collect_epoch: int | None
    base: tuple[str, int] | None = None
    generation: int = 0
    muted: bool = False

    @property
    def logged_as(self) -> int:
        """The generation in the state log, from which a restore sees who ran the epoch."""
        return MUTED if self.muted else self.generation

    def encode(self, record: bytes) -> str:
        """The order as text, for a property of a Spark job; `record`: the token as the log has it.

        A property is text, and the record is binary: hence base64.
        """
        given = self.token.checks, self.token.checkpoint
        text = base64.b64encode(record).decode()
        return orjson.dumps(
            [text, *given, self.token_offset, self.collect_epoch, self.base, self.generation,
             self.muted]
        ).decode()


@lru_cache(maxsize=4)
def decode_order(text: str) -> EpochOrder:
    """Decodes what `EpochOrder.encode` wrote; cached per process."""
    record, checks, checkpoint, offset, collect_epoch, base, generation, muted = orjson.loads(text)
    token = codec.decode(base64.b64decode(record))
    assert isinstance(token, Token), f"an order of an epoch holds {type(token)}"
    known = tuple(InputCheck(**check) for check in checks)
    token = replace(token, checks=known, checkpoint=checkpoint)
    built_on = tuple(base) if base is not None else None
    return EpochOrder(token, offset, collect_epoch, built_on, generation, muted)
