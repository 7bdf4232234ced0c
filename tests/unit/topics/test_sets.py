"""Which sets of a buffer count: against a model that looks at the whole history each time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perseid.errors import RetryableError
from perseid.topics.records import BufferRecord
from perseid.topics.sets import Divergence, Sets

BASE = 9  # the offset of the token after which the reader resumes
PLACES = ((0, 3), (1, 0))


def record(token: int, **fields: Any) -> BufferRecord:
    given = {
        "job_uuid": "u", "revision": "r", "layout": 2, "epoch": token - BASE, "input": 0,
        "origin": 3, "generation": 1, "attempt": 1, "chunk": 0, "chunks": 1, "rows_crc": 7,
        "data": b"rows", **fields,
    }  # fmt: skip
    return BufferRecord(token_offset=token, **given)


def sets(**limits: int) -> Sets:
    return Sets("u", 2, BASE, **limits)


@dataclass(frozen=True)
class History:
    """`log`: what the reader knows after each read of the token log: valid tokens and its end."""

    records: tuple[BufferRecord, ...]
    log: tuple[tuple[frozenset[int], int], ...]
    steps: tuple[str, ...]  # "record", "judge", "done", "trim"


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Tokens with rewinds; two producers that send sets, stop halfway and begin again."""
    chain: list[int] = []
    every: list[int] = []
    log: list[tuple[frozenset[int], int]] = []
    for offset in range(BASE + 1, BASE + 1 + draw(st.integers(2, 7))):
        back = draw(st.integers(0, 6))
        if chain and back < 2:
            del chain[len(chain) - 1 - back :]  # a Rewind
        else:
            chain.append(offset)
            every.append(offset)
        log.append((frozenset(chain), offset + 1))
    # Few sets, which several attempts send: else none would have anything in common.
    sent = [
        (draw(st.sampled_from(every)), draw(st.sampled_from(PLACES)), draw(st.integers(1, 3)))
        for _ in range(draw(st.integers(1, 3)))
    ]
    runs = [draw(_run(*draw(st.sampled_from(sent)))) for _ in range(draw(st.integers(0, 9)))]
    records: list[BufferRecord] = []
    while any(runs):
        run = draw(st.sampled_from([run for run in runs if run]))
        records.append(run.pop(0))
    steps = draw(st.lists(st.sampled_from(["judge", "done", "trim"]), max_size=12))
    steps += ["record"] * len(records)
    return History(tuple(records), tuple(log), tuple(draw(st.permutations(steps))))


@st.composite
def _run(
    draw: st.DrawFn, token: int, place: tuple[int, int], chunks: int
) -> list[BufferRecord]:  # fmt: skip
    """One attempt's records, as far as it came; some of them twice."""
    head = record(
        token, input=place[0], origin=place[1], generation=draw(st.sampled_from((1, 1, 2))),
        attempt=draw(st.integers(1, 3)), revision=draw(st.sampled_from("rrs")),
        rows_crc=draw(st.sampled_from((7, 7, 8))),
        chunks=draw(st.sampled_from((chunks, chunks, 1))),
    )  # fmt: skip
    order = draw(st.permutations(range(head.chunks)))
    found = [
        replace(head, chunk=chunk, data=b"%d of %s" % (chunk, repr(head).encode()))
        for chunk in (*order, *draw(st.lists(st.integers(0, head.chunks - 1), max_size=2)))
    ]
    return found[: draw(st.integers(0, len(found)))]


class Model:
    """All records so far; every question goes through all of them."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, BufferRecord]] = []

    def winner(self, token: int, place: tuple[int, int]) -> list[tuple[int, BufferRecord]] | None:
        """The chunks of the set that was complete first."""
        order = self._completed(token, place)
        return order[0] if order else None

    def diverging(self, token: int) -> set[tuple[int, int, int, int]]:
        """Input, origin, and both CRCs."""
        found = set()
        for place in PLACES:
            completed = self._completed(token, place)
            for other in completed[1:]:
                one, two = completed[0][0][1], other[0][1]
                if one.revision == two.revision and one.rows_crc != two.rows_crc:
                    found.add((*place, one.rows_crc, two.rows_crc))
        return found

    def _completed(
        self, token: int, place: tuple[int, int]
    ) -> list[list[tuple[int, BufferRecord]]]:  # fmt: skip
        ended: list[tuple[int, list[tuple[int, BufferRecord]]]] = []
        mine = [
            (o, r) for o, r in self.seen
            if r.token_offset == token and (r.input, r.origin) == place
        ]  # fmt: skip
        for who in {replace(r, chunk=0, data=b"") for _, r in mine}:
            chunks: dict[int, tuple[int, BufferRecord]] = {}
            for offset, r in mine:
                if replace(r, chunk=0, data=b"") == who:
                    chunks.setdefault(r.chunk, (offset, r))
            if len(chunks) == who.chunks:
                whole = [chunks[number] for number in range(who.chunks)]
                ended.append((max(offset for offset, _ in whole), whole))
        return [whole for _, whole in sorted(ended, key=lambda one: one[0])]


@settings(max_examples=400, deadline=None)
@given(histories(), st.sampled_from([1 << 20, 300, 0]))
def test_the_first_complete_set_of_each_valid_token_counts(history: History, limit: int) -> None:
    known, model = sets(bytes_max=limit), Model()
    valid, end, floor, done, at = frozenset[int](), BASE + 1, BASE, BASE, 0
    log = list(history.log)
    for step in history.steps:
        if step == "record":
            offset = 2 * at  # foreign records may lie between
            known.add(offset, history.records[at])
            model.seen.append((offset, history.records[at]))
            at += 1
        elif step == "judge" and log:
            valid, end = log.pop(0)
            known.judge(valid, end)
        elif step == "done" and any(token > done for token in valid):
            done = min(token for token in valid if token > done)
            known.done(done)
        elif step == "trim":
            floor = done
            known.trim(floor)
        compare(known, model, {token for token in valid if token > floor}, done)
        assert known.kept_bytes <= limit
        held = [
            o for o, r in model.seen
            if r.token_offset > floor and (r.token_offset in valid or r.token_offset >= end)
        ]  # fmt: skip
        assert known.needed_from(floor) == min(held, default=known.position)
    valid, end = history.log[-1]
    known.judge(valid, end)
    compare(known, model, {token for token in valid if token > floor}, done)


def compare(known: Sets, model: Model, tokens: set[int], done: int) -> None:
    for token in tokens:
        found = {(one.input, one.origin): one for one in known.whole(token)}
        for place in PLACES:
            wanted = model.winner(token, place)
            assert (place in known.missing(token, {place})) == (wanted is None)
            assert (place in found) == (wanted is not None)
            if wanted is not None:
                assert found[place].offsets == tuple(offset for offset, _ in wanted)
                data = found[place].data
                assert data is None or data == tuple(r.data for _, r in wanted)
                assert data is None or token > done


@settings(max_examples=400, deadline=None)
@given(histories())
def test_other_rows_for_the_same_token_and_revision_are_reported_once(history: History) -> None:
    known, model = sets(), Model()
    found: list[Divergence] = []
    log = list(history.log)
    valid = frozenset[int]()
    for offset, one in enumerate(history.records):
        known.add(offset, one)
        model.seen.append((offset, one))
        if log and offset % 2:
            valid, end = log.pop(0)
            known.judge(valid, end)
        reported = known.divergences()
        assert {d.token_offset for d in reported} <= valid
        found += reported
    valid, end = history.log[-1]
    known.judge(valid, end)
    found += known.divergences()
    assert known.divergences() == []
    for token in valid:
        seen = {
            (d.input, d.origin, d.first.rows_crc, d.other.rows_crc)
            for d in found if d.token_offset == token
        }  # fmt: skip
        assert seen == model.diverging(token)


def test_a_divergence_names_epoch_revision_and_both_checksums() -> None:
    known = sets()
    known.judge(frozenset({10}), 11)
    known.add(0, record(10, rows_crc=0xAB))
    known.add(1, record(10, rows_crc=0xCD, generation=2))
    (one,) = known.divergences()
    assert str(one) == (
        "epoch 1, input 0, origin 3: generation 1 sent rows with CRC 000000ab, and generation 2 "
        "others with 000000cd for the same token (at offset 10) of revision r"
    )
    known.add(2, record(10, rows_crc=0xEF, generation=3, revision="other"))
    known.add(3, record(10, rows_crc=0xAB, generation=3))
    assert known.divergences() == []


def test_a_divergence_is_found_after_the_epoch_has_run() -> None:
    known = sets()
    known.judge(frozenset({10}), 11)
    known.add(0, record(10))
    known.done(10)
    known.add(1, record(10, attempt=2, chunks=2, rows_crc=8))
    known.add(2, record(10, attempt=2, chunks=2, chunk=1, rows_crc=8))
    assert [d.other.rows_crc for d in known.divergences()] == [8]


def test_chunks_of_two_attempts_are_no_set() -> None:
    known = sets()
    known.judge(frozenset({10}), 11)
    known.add(0, record(10, chunks=2))
    known.add(1, record(10, chunks=2, chunk=1, attempt=2))
    assert list(known.whole(10)) == []
    known.add(2, record(10, chunks=2, chunk=0, attempt=2, data=b"other"))
    (one,) = known.whole(10)
    assert (one.attempt.attempt, one.offsets, one.data) == (2, (2, 1), (b"other", b"rows"))
    assert known.dropped == {"of another attempt": 1}, "of the first attempt, which did not end"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [({"job_uuid": "v"}, "of another job or layout"), ({"layout": 3}, "of another job or layout"),
     ({"chunk": 1}, "without a place in its set"), ({"chunk": -1}, "without a place in its set")],
)  # fmt: skip
def test_records_that_are_not_of_this_buffer_are_dropped_and_counted(
    fields: dict[str, Any], reason: str
) -> None:
    known = sets()
    known.add(0, record(10, **fields))
    known.add(1, record(BASE))
    assert known.dropped == {reason: 1, "of a token that is not needed any more": 1}
    assert known.attempts == 0


def test_records_of_tokens_that_the_reader_has_not_read_yet_wait_for_it() -> None:
    known = sets()
    known.judge(frozenset(), 10)
    for offset, token in enumerate((10, 11, 12)):
        known.add(offset, record(token))
    known.judge(frozenset({10, 12}), 13)
    assert [len(list(known.whole(token))) for token in (10, 11, 12)] == [1, 0, 1]
    assert known.dropped == {"of a token that was taken back": 1}
    known.add(3, record(11, attempt=2))
    assert known.dropped == {"of a token that was taken back": 2}


def test_the_rows_of_the_latest_tokens_go_first_and_are_read_again() -> None:
    known = sets(bytes_max=8)
    known.judge(frozenset({10, 11, 12}), 13)
    for offset, token in enumerate((12, 10, 11)):
        known.add(offset, record(token))
    found = {token: next(known.whole(token)) for token in (10, 11, 12)}
    assert {t: one.data for t, one in found.items()} == {10: (b"rows",), 11: (b"rows",), 12: None}
    assert found[12].offsets == (0,)


def test_more_attempts_than_can_be_known_are_an_error() -> None:
    known = sets(attempts_max=2)
    known.judge(frozenset({10}), 11)
    for attempt in range(2):
        known.add(attempt, record(10, attempt=attempt, chunks=2))
    with pytest.raises(RetryableError, match="more than 2 sets that are not trimmed"):
        known.add(2, record(10, attempt=2, chunks=2))
    known.trim(10)
    assert (known.attempts, known.kept_bytes) == (0, 0)


def test_a_set_is_lost_when_its_sender_has_sent_one_of_a_later_token() -> None:
    known, places = sets(), frozenset(PLACES)
    known.judge(frozenset({10, 11}), 12)
    known.add(0, record(11, chunks=2))
    assert known.overtaken(10, places, 1) == set(), "it is not complete"
    known.add(1, record(11, chunks=2, chunk=1))
    assert known.overtaken(10, places, 1) == {PLACES[0]}
    assert known.overtaken(10, {PLACES[1]}, 1) == set(), "the other sender may be slow"
    assert known.overtaken(11, places, 1) == set()


def test_a_later_set_of_a_newer_generation_does_not_prove_it() -> None:
    """Its token may be one after a rewind that took the earlier token back."""
    known = sets()
    known.add(0, record(11, generation=3))
    assert known.overtaken(10, frozenset(PLACES), 2) == set()
    assert known.overtaken(10, frozenset(PLACES), 3) == {PLACES[0]}
