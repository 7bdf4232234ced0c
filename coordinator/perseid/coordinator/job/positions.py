"""Positions in source partitions, and how the ranges of tokens move them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from perseid.jobs.model.spec import JobSpec
from perseid.topics.records import SourceRange, Token


@dataclass(frozen=True, slots=True)
class Position:
    """The next offset of one source partition that no token has named yet."""

    topic: str
    topic_id: str
    offset: int


Positions = Mapping[tuple[str, int], Position]  # by (source, partition)


def positions_after(start: Positions, ranges: tuple[SourceRange, ...]) -> Positions:
    """`start`, advanced past `ranges`."""
    moved = dict(start)
    for r in ranges:
        moved[r.source, r.partition] = Position(r.topic, r.topic_id, r.end)
    return moved


def positions_past(spec: JobSpec, start: Positions, tokens: Iterable[Token]) -> Positions:
    """`start`, advanced past what `tokens` name of the sources of `spec`."""
    for token in tokens:
        start = positions_after(start, ranges_in(spec, token))
    return start


def first_positions(spec: JobSpec, tokens: Iterable[Token]) -> Positions:
    """The start of each partition of `spec` in the earliest of `tokens` that names it."""
    found: dict[tuple[str, int], Position] = {}
    for token in tokens:
        for r in ranges_in(spec, token):  # if a partition is split, its first piece counts
            found.setdefault((r.source, r.partition), Position(r.topic, r.topic_id, r.start))
    return found


def ranges_of(token: Token) -> tuple[SourceRange, ...]:
    """The ranges of all splits; pieces of one partition in their order."""
    return tuple(r for split in token.splits for r in split)


def ranges_in(spec: JobSpec, token: Token) -> tuple[SourceRange, ...]:
    """The ranges of `spec`'s sources; another revision may have used a name for another topic."""
    topics = {name: source.topic for name, source in spec.sources.items()}
    return tuple(r for r in ranges_of(token) if topics.get(r.source) == r.topic)
