"""One report of the audits of a sample's parts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

from perseid.replay.findings import Audit, Compared, Verdict

if TYPE_CHECKING:
    from perseid.replay.ranges import Sample

EXPLAINED_MAX = 3  # parts whose reasons are shown


def merged(audits: Sequence[Audit], sample: Sample) -> Audit:
    """One report of all parts. Its causes are the last part's, which has those before it too.

    The verdict is that of the part that comes first in the order of verdicts, and `recorded` the
    environment that this part was compared with.
    """
    order = get_args(Verdict)
    verdict = min((one.verdict for one in audits), key=order.index)
    worst = [one for one in audits if one.verdict == verdict]
    reasons = [reason for one in worst[:EXPLAINED_MAX] for reason in one.reasons]
    if len(worst) > EXPLAINED_MAX:
        reasons.append(f"The same verdict holds for {len(worst) - EXPLAINED_MAX} more parts.")
    reasons.append(f"It is {sample}.")
    return replace(
        audits[-1], first_epoch=audits[0].first_epoch, from_ms=audits[0].from_ms,
        base=audits[0].base, verdict=verdict, reasons=tuple(dict.fromkeys(reasons)),
        recorded=worst[0].recorded, compared=_compared(audits),
        states=tuple(state for one in audits for state in one.states),
        records_in=sum(one.records_in for one in audits),
        epochs=sum(one.epochs for one in audits),
        seconds=round(sum(one.seconds for one in audits), 3),
    )  # fmt: skip


def _compared(audits: Sequence[Audit]) -> tuple[Compared, ...]:
    """By topic: the sums."""
    found: dict[str, Compared] = {}
    for one in (one for audit in audits for one in audit.compared):
        before = found.get(one.topic)
        if before is not None:
            one = Compared(  # noqa: PLW2901
                one.topic, "records" if "records" in {one.by, before.by} else "ledger",
                one.records + before.records, one.windows + before.windows, before.why or one.why,
                one.in_topic + before.in_topic,
            )  # fmt: skip
        found[one.topic] = one
    return tuple(found[topic] for topic in sorted(found))
