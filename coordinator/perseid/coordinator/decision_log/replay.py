"""Runs the core over a file of decisions, and compares what it decides with what is recorded. Pure.

The comparison ends at the first difference: what follows rests on another state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from perseid.coordinator.core import decide
from perseid.coordinator.decision_log.lines import (
    CutOff,
    End,
    Event,
    Head,
    Line,
    digests,
    in_short,
)
from perseid.coordinator.model import ClusterState
from perseid.coordinator.token_time import Now
from perseid.errors import UsageError
from perseid.errors.texts import named

Short = tuple[Mapping[str, Any], ...]  # actions in short, see `lines.in_short`


@dataclass(frozen=True, slots=True)
class Difference:
    """The first event on which the core decides otherwise; `job` is empty if it is about several.

    `raised`: what the core raised, recorded and now.
    """

    n: int
    event: str
    job: str
    recorded: Short
    replayed: Short
    raised: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True)
class Replay:
    """The outcome. `state` is that after event `n`, at `now`.

    `differing`: the jobs (or "workers") whose state differs at the file's end. `ending`: "closed",
    "open" (the process was killed or still writes), "cut off" or "until" (as was asked for).
    `lost_after`: decisions that are missing after the file's end, because of `why`.
    """

    head: Head
    state: ClusterState
    now: Now
    n: int = 0
    events: Mapping[str, int] = field(default_factory=dict)
    quiet: int = 0
    difference: Difference | None = None
    differing: tuple[str, ...] = ()
    ending: str = "open"
    lost_after: int = 0
    why: str = ""

    @property
    def same(self) -> bool:
        return self.difference is None and not self.differing


def replay(lines: Iterable[Line], until: int | None = None) -> Replay:
    """The outcome of all lines, or of those to event `until`. UsageError for a missing event."""
    found: Replay | None = None
    events: Counter[str] = Counter()
    for line in lines:
        if isinstance(line, Head):
            found = Replay(line, line.state, Now(0.0, line.wall_ms), events=events)
            continue
        assert found is not None, "the first line is a Head"
        if isinstance(line, CutOff):
            return _checked(replace(found, ending="cut off"), until)
        if isinstance(line, End):
            return _checked(_ended(found, line), until)
        found = _decided(found, line)
        events[type(line.event).__name__] += 1
        if line.n == until or found.difference is not None:
            return replace(found, ending="until") if found.difference is None else found
    assert found is not None, "the first line is a Head"
    return _checked(found, until)


def _checked(found: Replay, until: int | None) -> Replay:
    if until is not None and until != found.n:
        raise UsageError(
            f"--until {until}: expected an event of the file, and it has 1 to {found.n}"
        )
    return found


def _decided(found: Replay, line: Event) -> Replay:
    before = found.state if line.time is None else replace(found.state, time=line.time)
    state, raised, short = before, "", Short()
    try:
        state, actions = decide(before, line.event, line.now)
        short = tuple(in_short(one) for one in actions)
    except Exception as defect:  # it is compared, too
        raised = named(defect)
    difference = None
    if (raised, short) != (line.raised, line.actions):
        job = str(getattr(line.event, "job", ""))
        difference = Difference(
            line.n, type(line.event).__name__, job, line.actions, short, (line.raised, raised)
        )
    quiet = found.quiet + line.quiet
    return replace(found, n=line.n, state=state, now=line.now, quiet=quiet, difference=difference)


def _ended(found: Replay, line: End) -> Replay:
    own = digests(found.state)
    names = sorted(own.keys() | line.state.keys())
    differing = tuple(name for name in names if own.get(name) != line.state.get(name))
    return replace(found, differing=differing, ending="closed", lost_after=line.lost, why=line.why)
