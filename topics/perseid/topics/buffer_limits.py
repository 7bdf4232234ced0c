"""How full a buffer may be, and what of it must stay. Pure.

    below 80 %       tokens are granted as always
    from 80 % on     an event; the next token is a checkpoint, and no other is granted until it is
                     complete: then the buffer is trimmed, and the last 20 % are for getting there
    from 100 % on    the slowest reader is dropped too: it restores from a checkpoint and the
                     sources. Writers never wait

A record stays as long as a reader has not done its epoch, or the oldest kept checkpoint is before
it: a restore falls back to that one when newer ones are damaged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Level = Literal["free", "near", "full"]
NEAR = 0.8  # of the limit: what remains has to last until a checkpoint is complete


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the coordinator does about a buffer.

    `checkpoint`: the next token must be one. `grants`: whether a token may be granted at all.
    `dropped`: the reader that restores from elsewhere. `event`: for people, empty while free.
    """

    level: Level
    checkpoint: bool = False
    grants: bool = True
    dropped: str | None = None
    event: str = ""


def judge(
    topic: str,
    used_bytes: int,
    bytes_max: int,
    readers: Mapping[str, int],
    tip: int,
    *,
    checkpointing: bool,
) -> Verdict:
    """What to do about the buffer `topic`.

    `readers`: by name the offset of the last token that each has done, of unassigned partitions
    that of their restore epoch. `tip`: the last token's offset. `checkpointing`: one is under way.
    """
    if used_bytes < NEAR * bytes_max:
        return Verdict("free")
    share = f"{topic} holds {used_bytes / bytes_max:.0%} of {bytes_max} bytes"
    waits = "nothing else is granted until a checkpoint is complete"
    if used_bytes < bytes_max:
        return Verdict("near", not checkpointing, not checkpointing, None, f"{share}: {waits}")
    slowest = min(readers, key=lambda name: (readers[name], name), default=None)
    if slowest is None or readers[slowest] >= tip:
        return Verdict("full", not checkpointing, not checkpointing, None, f"{share}: {waits}")
    event = f"{share}: {slowest} is dropped and restores from a checkpoint; {waits}"
    return Verdict("full", not checkpointing, not checkpointing, slowest, event)


def floor(checkpoints: Iterable[int], readers: Iterable[int]) -> int | None:
    """The offset of the last token of which no record is needed; None: none may go.

    `checkpoints`: the offsets of the kept checkpoints' tokens. `readers`: as in `judge`, over all
    partitions of the operator.
    """
    oldest = min(checkpoints, default=None)
    return None if oldest is None else min([oldest, *readers])
