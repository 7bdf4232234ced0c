"""What is known of how much a spread job's buffer topics hold.

Owns what fragments have reported as sent, by the checkpoint after which it was. The rules:
`buffer_bound`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

Sent = Mapping[str, int]  # bytes, by the operator that reads them


@dataclass(frozen=True, slots=True)
class Buffers:
    """`sent`: by the epoch of a checkpoint, what later epochs have sent, up to the next key.

    A few keys: the checkpoints that are kept or collected. `last`: of each fragment's last epoch.
    """

    sent: Mapping[int, Sent] = field(default_factory=dict)
    last: Mapping[str, Sent] = field(default_factory=dict)

    def counted(self, fragment: str, sent: Sent, after: int, oldest: int) -> Buffers:
        """The fragment has sent so much in an epoch after the checkpoint `after`.

        `oldest`: that of the oldest kept one, before which buffers are trimmed.
        """
        of_all = {epoch: found for epoch, found in self.sent.items() if epoch >= oldest}
        if after >= oldest:
            of_all[after] = _sum(of_all.get(after, {}), sent)
        return replace(self, sent=of_all, last={**self.last, fragment: sent})

    def held(self, oldest: int) -> dict[str, int]:
        """What was sent after the checkpoint of the epoch `oldest`."""
        found: dict[str, int] = {}
        for epoch, sent in self.sent.items():
            if epoch >= oldest:
                found = _sum(found, sent)
        return found


def _sum(one: Sent, other: Sent) -> dict[str, int]:
    return dict(sorted((Counter(one) + Counter(other)).items()))
