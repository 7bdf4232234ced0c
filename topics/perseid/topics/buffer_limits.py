"""What of a buffer must stay. Pure; how full one may be: `perseid.coordinator.buffer_bound`.

A record stays as long as a reader has not done its epoch, or the oldest kept checkpoint is before
it: a restore falls back to that one when newer ones are damaged.
"""

from __future__ import annotations

from collections.abc import Iterable


def floor(checkpoints: Iterable[int], readers: Iterable[int]) -> int | None:
    """The offset of the last token of which no record is needed; None: none may go.

    `checkpoints`: the offsets of the kept checkpoints' tokens. `readers`: by partition of the
    operator the offset of the last token that it has done, of unassigned ones that of their restore
    epoch.
    """
    oldest = min(checkpoints, default=None)
    return None if oldest is None else min([oldest, *readers])
