"""An audit of a sample: its parts, and one report of all."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from perseid.clocks import SystemClock
from perseid.records import CheckpointPointer
from perseid.replay.auditing import Asked, Auditor
from perseid.replay.causes import Causes
from perseid.replay.differences import Differences, Place
from perseid.replay.findings import Audit, Compared, ComparedState, Difference, Record
from perseid.replay.planned import Planned, summed
from perseid.replay.programs import Program
from perseid.replay.ranges import Range, Sample
from perseid.replay.request import Request
from perseid.replay.sampling import merged
from perseid.replay.subjects import Subject
from perseid.topics.records import Token
from support.audit_reports import example
from support.fragment_contexts import DEPLOYMENT

PROGRAM = Program("r", "archive")
TOKENS = {10 + e: Token(1, "u", e, 9 + e, "r", 1, (), 1_000 * e) for e in range(1, 41)}
SPAN = Range("u", "r", 1, 1, 40, 0, 10, None, 1_000, 40_000, TOKENS)
KEPT = tuple(
    CheckpointPointer(e, 1, 1, "r", 10 + e, "m", 0, 0, 0) for e in range(5, 40, 5)
)  # eight intervals of five epochs


@dataclass
class World:
    """An auditor of SPAN: epoch 12 and all from 30 on differ, by one key each. `ran`: parts."""

    folder: Path
    ran: list[tuple[int, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def auditor(self) -> Auditor:
        asked = Asked("orders", Request(epochs=(1, 40)), self.folder, 1)
        nothing: Any = None
        auditor = Auditor(
            DEPLOYMENT, nothing, nothing, SystemClock(), asked,
            lambda line: self.notes.append(str(line)),
        )  # fmt: skip
        auditor._kept = KEPT
        own: Any = auditor

        def audited() -> Audit:
            first, last = own._asked.request.epochs
            self.ran.append((first, last))
            differ = [e for e in range(first, last + 1) if e == 12 or e >= 30]
            for epoch in differ:
                auditor._causes.add(difference(epoch, b"k%d" % (epoch % 10)))
            verdict: Any = "diverged" if differ else "equal"
            return replace(
                example(), first_epoch=first, last_epoch=last, verdict=verdict, epochs=5,
                records_in=50, seconds=1.5, reasons=(f"{verdict} from {first}",),
                causes=auditor._causes.found(), compared=(Compared("out", "ledger", 50, 5),),
                states=(ComparedState(last, 1, 7, len(differ)),),
            )  # fmt: skip

        own._part = audited
        own.subject = lambda **_: Subject(SPAN, PROGRAM, PROGRAM)
        return auditor


def difference(epoch: int, key: bytes) -> Differences:
    place = Place("op", 0, epoch, "out", 0)
    found = Difference(
        "value", "op", 0, epoch, "out", 0, 0, Record(key, b"1", 1), Record(key, b"2")
    )
    return Differences(place, (found,))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_all_parts_make_one_report(world: World) -> None:
    found = world.auditor().sample(Fraction(1), 3)
    assert world.ran == [(1, 40)]
    assert found.reasons[-1] == (
        "It is a sample of 8 of 8 intervals between checkpoints, drawn with seed 3: epochs 1 to 40."
    )
    world.ran.clear()
    half = world.auditor().sample(Fraction(1, 2), 3)
    assert len(world.ran) > 1
    covered = {e for first, last in world.ran for e in range(first, last + 1)}
    assert len(covered) == 20
    assert (half.first_epoch, half.last_epoch) == (min(covered), max(covered))
    differ = sorted(e for e in covered if e == 12 or e >= 30)
    (cause,) = half.causes
    assert (cause.first_epoch, cause.records) == (differ[0], len(differ))
    assert (cause.epochs, cause.keys) == (len(differ), len({e % 10 for e in differ}))
    assert half.epochs == 5 * len(world.ran)
    assert half.seconds == 1.5 * len(world.ran)
    assert half.compared == (Compared("out", "ledger", 50 * len(world.ran), 5 * len(world.ran)),)
    assert [state.epoch for state in half.states] == [last for _, last in world.ran]


def test_a_seed_by_chance_is_shown_and_draws_the_same_again(world: World) -> None:
    found = world.auditor().sample(Fraction(1, 2), None)
    assert f"It is {world.notes[0]}." == found.reasons[-1]
    seed = int(found.reasons[-1].partition("with seed ")[2].partition(":")[0])
    assert world.auditor().sample(Fraction(1, 2), seed) == found


def test_a_sample_begins_without_the_causes_of_what_was_audited_before(world: World) -> None:
    auditor = world.auditor()
    once = auditor.sample(Fraction(1, 2), 3)
    again = auditor.sample(Fraction(1, 2), 3)
    assert once.causes and again == once


def test_the_worst_verdict_is_that_of_the_report() -> None:
    sample = Sample(1, 9, 5, ((1, 2),))
    equal = replace(example(), verdict="equal", reasons=("Equal.",))
    parts = [
        equal,
        *(replace(equal, verdict="diverged", reasons=(f"Diverged {i}.",)) for i in range(5)),
        equal,
    ]
    found = merged(parts, sample)
    assert (found.verdict, found.exit_code) == ("diverged", 1)
    assert found.reasons == (
        "Diverged 0.", "Diverged 1.", "Diverged 2.", "The same verdict holds for 2 more parts.",
        f"It is {sample}.",
    )  # fmt: skip
    gone = replace(equal, verdict="input_gone", reasons=("Gone.",))
    assert merged([*parts, gone], sample).verdict == "input_gone"
    assert merged([equal, equal], sample).reasons == ("Equal.", f"It is {sample}.")


def test_topics_add_up() -> None:
    one = replace(
        example(), compared=(Compared("b", "ledger", 1, 2, "", 2), Compared("a", "ledger", 3, 4))
    )
    two = replace(example(), compared=(Compared("b", "records", 10, 20, "Expired.", 6),))
    assert merged([one, two], Sample(1, 2, 2, ((1, 2),))).compared == (
        Compared("a", "ledger", 3, 4), Compared("b", "records", 11, 22, "Expired.", 8),
    )  # fmt: skip


def test_the_environment_is_that_of_the_part_with_the_verdict() -> None:
    equal = replace(example(), verdict="equal", recorded={"numpy": "1"})
    other = replace(example(), verdict="environment_differs", recorded={"numpy": "2"})
    found = merged([equal, other, equal], Sample(1, 3, 3, ((1, 2),)))
    assert (found.verdict, found.recorded) == ("environment_differs", {"numpy": "2"})


def test_a_dry_run_adds_the_parts_up() -> None:
    one = Planned(
        "orders", "r", "r", 1, 5, 1, 5, "scratch", 5, 5, 50, 9, 700, 2.0, ("out",), ""
    )  # fmt: skip
    two = replace(one, first_epoch=9, last_epoch=12, to_ms=12, gone="rows is trimmed")
    found = summed([one, two], "a sample")
    assert (found.first_epoch, found.last_epoch, found.to_ms) == (1, 12, 12)
    assert (found.epochs, found.compared, found.records) == (10, 10, 100)
    assert (found.bytes, found.seconds, found.sample) == (1_400, 4.0, "a sample")
    assert found.gone == "rows is trimmed"
    unknown = summed([one, replace(two, bytes=None, seconds=None)], "")
    assert (unknown.bytes, unknown.seconds, unknown.sample) == (None, None, "")
    assert summed([one], "") == one


def test_keys_of_several_parts_count_once() -> None:
    causes = Causes()
    causes.compared("op", pa.array([b"a", b"b"]))
    causes.add(difference(1, b"a"))
    causes.add(difference(9, b"a"))
    (cause,) = causes.found()
    assert (cause.keys, cause.records, cause.keys_share) == (1, 2, 0.5)
