"""Searches the first interval between checkpoints that differs (`bisection`), by audits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from perseid.errors import RefusedError
from perseid.replay import bisection
from perseid.replay.findings import Audit, Bisection, Step
from perseid.replay.request import Request

if TYPE_CHECKING:
    from perseid.replay.bisection import Interval

NAMED_MAX = 10  # intervals that a reason names


@dataclass
class Search:
    """One bisection of the epochs `first_epoch` to `last_epoch` of a job.

    `checkpoints`: the kept ones' epochs. `audit`: audits a request; it may run more epochs than
    these if a checkpoint was removed meanwhile.
    """

    job: str
    first_epoch: int
    last_epoch: int
    checkpoints: Iterable[int]
    audit: Callable[[Request], Audit]
    note: Callable[[str], None]
    _audits: dict[int, Audit] = field(default_factory=dict)  # by the interval's number

    def run(self) -> Audit:
        """The audit of the first interval that differs, else of the last one.

        An audit without an answer, since the input is gone or another one, ends the search.
        RefusedError where there is nothing to divide, or where a state cannot be compared.
        """
        parts = bisection.intervals(self.first_epoch, self.last_epoch, self.checkpoints)
        if len(parts) < 2:
            raise RefusedError(
                f"epochs {self.first_epoch} to {self.last_epoch} of {self.job} have no kept "
                "checkpoint between them, so there is nothing to bisect: leave out --bisect, or "
                "ask for more epochs"
            )
        differs: dict[int, bool] = {}
        while (number := bisection.next_interval(len(parts), differs)) is not None:
            part = parts[number]
            self.note(f"{self.job}: interval {number + 1} of {len(parts)}, epochs {part}")
            found = self.audit(Request(epochs=(part.first_epoch, part.last_epoch)))
            self._audits[number] = found
            if found.exit_code not in (0, 1):
                return found
            differs[number] = found.exit_code == 1
            if not differs[number] and part.checkpoint:
                self._refuse_unknown(part, found)
        return self._judged(parts, differs)

    def _refuse_unknown(self, part: Interval, found: Audit) -> None:
        """An interval is equal only if the state at its end is."""
        states = [one for one in found.states if one.epoch == part.last_epoch]
        if not states:
            raise RefusedError(
                f"the checkpoint of epoch {part.last_epoch} of {self.job} was removed meanwhile, "
                "so the state there is unknown; bisect again, with the checkpoints that are kept"
            )
        if not states[0].partitions and states[0].why:
            raise RefusedError(
                f"the state of {self.job} cannot be compared with the checkpoint of epoch "
                f"{part.last_epoch}, so its interval is neither equal nor another one: "
                f"{states[0].why}. Leave out --bisect"
            )

    def _judged(self, parts: tuple[Interval, ...], differs: dict[int, bool]) -> Audit:
        number = bisection.first_differing(differs)
        audit = self._audits[len(parts) - 1 if number is None else number]
        steps = tuple(
            Step(parts[n].first_epoch, parts[n].last_epoch, found.verdict, found.epochs)
            for n, found in self._audits.items()
        )
        of_outputs = [cause.first_epoch for cause in audit.causes if not cause.state]
        found = Bisection(
            self.first_epoch, self.last_epoch, len(parts), steps,
            min(of_outputs, default=None),
            tuple(str(parts[n]) for n in bisection.presumed(len(parts), differs)),
        )  # fmt: skip
        place = _place(None if number is None else parts[number], found)
        reasons = [*audit.reasons[:1], place, _cost(found), *_presumed(found), *audit.reasons[1:]]
        return replace(audit, bisection=found, reasons=tuple(reasons))


def _place(part: Interval | None, found: Bisection) -> str:
    """Where the first difference is."""
    if part is None:
        return (
            f"Neither the first nor the last interval between checkpoints of epochs "
            f"{found.first_epoch} to {found.last_epoch} differs, so there is nothing to search for."
        )
    before = (
        f"the checkpoint of epoch {part.first_epoch - 1}"
        if part.first_epoch > found.first_epoch
        else "the start of the range"
    )
    after = f"that of epoch {part.last_epoch}" if part.checkpoint else "its end"
    if found.differs_from is None:
        return (
            f"The first difference is between {before} and {after}: the outputs are equal, and the "
            "state at its end is another one."
        )
    return f"The first epoch that differs is {found.differs_from}, between {before} and {after}."


def _cost(found: Bisection) -> str:
    ran = ", ".join(
        f"{step.first_epoch}:{step.last_epoch} {step.verdict}" for step in found.steps
    )  # fmt: skip
    epochs = found.last_epoch - found.first_epoch + 1
    return (
        f"{len(found.steps)} of {found.intervals} intervals ran, "
        f"{sum(step.epochs for step in found.steps)} epochs for a range of {epochs}: {ran}."
    )


def _presumed(found: Bisection) -> list[str]:
    """What the search takes for granted; nothing if all earlier intervals ran."""
    if not found.presumed:
        return []
    more = len(found.presumed) - NAMED_MAX
    named = ", ".join(found.presumed[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
    return [
        f"That these epochs are equal is presumed, since a difference that lasts would show later "
        f"too: {named}. A difference that does not last can be there: audit them without --bisect "
        "to be sure."
    ]
