"""The lines of a file of decisions, each a JSON object. Pure.

    head   format, version, coordinator, epoch, wall_ms, `state`; `lost` and `why` after a gap
    event  `n`, `now` as (monotonic_s, wall_ms), `event`, `actions` in short, `raised` by a defect
    end    `end` as the last `n`, `state` as digests by job; `lost` and `why` before a gap

Events that look at the world and change nothing but the leader's time, such as most ticks, are
only counted: the next line has their number as `quiet`, and the `time` after them. An action in
short has its plain fields, and the digest of all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from perseid.coordinator import events as ev
from perseid.coordinator.actions import Action
from perseid.coordinator.decision_log.codec import KIND, decoded, digest, dumps, encoded
from perseid.coordinator.model import ClusterState
from perseid.coordinator.token_time import Now, Time
from perseid.errors import UsageError
from perseid.errors.texts import cut

FORMAT = 1
TEXT_MAX = 80  # characters of a text of an action in short
_LOOKS = (ev.Tick, ev.RegistrySeen, ev.EndsSeen, ev.TopicsSeen)
_WANTED = "a file that `perseid decisions list` shows"


@dataclass(frozen=True, slots=True)
class Decided:
    """One event, and what the core made of it. `raised`: by the core, a defect.

    `quiet`: events right before it that were only counted. `lost`: decisions right before it that
    could not be taken.
    """

    before: ClusterState
    event: ev.Event
    now: Now
    after: ClusterState
    actions: tuple[Action, ...] = ()
    quiet: int = 0
    lost: int = 0
    raised: str = ""


@dataclass(frozen=True, slots=True)
class Head:
    """The first line. `lost`: decisions before it that are in no file, because of `why`."""

    version: str
    coordinator: str
    epoch: int
    wall_ms: int
    state: ClusterState
    lost: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """A line of an event. `time`: the leader's before it, if `quiet` events have changed it."""

    n: int
    now: Now
    event: ev.Event
    actions: tuple[Mapping[str, Any], ...]
    quiet: int = 0
    time: Time | None = None
    raised: str = ""


@dataclass(frozen=True, slots=True)
class End:
    """The last line of a file that was closed. `state`: digests, see `digests`."""

    n: int
    state: Mapping[str, str]
    lost: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class CutOff:
    """The file's last line lacks its end: the process was killed, or the disk was full."""


Line = Head | Event | End | CutOff


def is_quiet(before: ClusterState, event: ev.Event, after: ClusterState, actions: object) -> bool:
    """Whether the event is a look at the world that changed nothing but the leader's time."""
    return (
        not actions and after.jobs is before.jobs and isinstance(event, _LOOKS)
        and after.balance is before.balance
        and (after.workers is before.workers
             or list(after.workers.items()) == list(before.workers.items()))
    )  # fmt: skip


def head_line(head: Head) -> bytes:
    return dumps({
        "format": FORMAT, "version": head.version, "coordinator": head.coordinator,
        "epoch": head.epoch, "wall_ms": head.wall_ms, **_gap(head.lost, head.why),
        "state": encoded(head.state),
    })  # fmt: skip


def event_line(n: int, decided: Decided) -> bytes:
    line: dict[str, Any] = {"n": n, "now": [decided.now.monotonic_s, decided.now.wall_ms]}
    if decided.quiet:
        line |= {"quiet": decided.quiet, "time": encoded(decided.before.time)}
    line |= {"event": encoded(decided.event), "actions": [in_short(one) for one in decided.actions]}
    return dumps(line | {"raised": decided.raised} if decided.raised else line)


def end_line(end: End) -> bytes:
    return dumps({"end": end.n, **_gap(end.lost, end.why), "state": end.state})


def _gap(lost: int, why: str) -> dict[str, Any]:
    return {"lost": lost, "why": why} if lost else {}


def in_short(action: Action) -> dict[str, Any]:
    """The action's plain fields, those of the records in it, and the digest of all of it."""
    whole = encoded(action)
    short = {"do": whole[KIND], **_plain(whole)}
    for inner in whole.values():
        if isinstance(inner, dict) and KIND in inner:
            short |= {name: one for name, one in _plain(inner).items() if name not in short}
    return {**short, "digest": digest(action)}


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: one[:TEXT_MAX] if isinstance(one, str) else one
        for name, one in fields.items()
        if name != KIND and isinstance(one, str | int | float)
    }


def digests(state: ClusterState) -> dict[str, str]:
    """The digest of each job, as "job NAME", and of the workers."""
    jobs = {f"job {name}": digest(job) for name, job in state.jobs.items()}
    return {**jobs, "workers": digest(dict(state.workers))}


def parsed(lines: Iterable[bytes], path: str) -> Iterator[Line]:
    """The lines of the file at `path`, a Head first. UsageError names the line that is none."""
    number = 0
    for number, raw in enumerate(lines, 1):
        if not raw.endswith(b"\n") and number > 1:
            yield CutOff()
            return
        try:
            line = _parsed(orjson.loads(raw), first=number == 1)
            if isinstance(line, Event) and line.n != number - 1:
                raise ValueError(f"event {line.n} is in the place of event {number - 1}")
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            what = "the first line of a leader's decisions" if number == 1 else "a decision"
            raise UsageError(
                f"{path}, line {number}: expected {what}, found {cut(repr(raw), TEXT_MAX)} "
                f"({type(error).__name__}: {cut(str(error), TEXT_MAX)}): the file is damaged or of "
                f"another kind; replay another one, {_WANTED}"
            ) from None
        yield line
    if number == 0:
        raise UsageError(f"{path} is empty: expected {_WANTED}")


def _parsed(line: Any, *, first: bool) -> Line:
    if first:
        return _head(line)
    gap = {"lost": line.get("lost", 0), "why": line.get("why", "")}
    if "end" in line:
        return End(line["end"], line["state"], **gap)
    monotonic_s, wall_ms = line["now"]
    event = decoded(line["event"])
    if not isinstance(event, ev.Event):
        raise TypeError(f"{type(event).__name__} is no event")
    time = decoded(line["time"]) if "quiet" in line else None
    return Event(
        line["n"], Now(monotonic_s, wall_ms), event, tuple(line["actions"]),
        line.get("quiet", 0), time, line.get("raised", ""),
    )  # fmt: skip


def _head(line: Any) -> Head:
    if line["format"] != FORMAT:
        raise UsageError(
            f"the file has format {line['format']}, and this version reads {FORMAT}: replay it "
            f"with perseid {line.get('version', 'of the version that wrote it')}"
        )
    state = decoded(line["state"])
    if not isinstance(state, ClusterState):
        raise TypeError(f"{type(state).__name__} is no state of a leader")
    return Head(
        line["version"], line["coordinator"], line["epoch"], line["wall_ms"], state,
        line.get("lost", 0), line.get("why", ""),
    )  # fmt: skip
