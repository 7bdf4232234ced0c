"""Which partitions are held back, by whom, and which ids may be ended."""

from __future__ import annotations

import pytest

from perseid.cli.open_transactions import (
    STUCK_S,
    Held,
    check_owner,
    held_back,
    left_text,
    owners,
    to_abort,
    topics_of,
    writers,
)
from perseid.errors import RefusedError, UsageError
from perseid.jobs.model import layout
from perseid.jobs.model.spec import ErrorsSpec, JobSpec, OperatorSpec, SinkSpec, SourceSpec
from perseid.records import Assignment, Plan

SPEC = JobSpec(
    name="shop",
    parallelism=2,
    sources={"lines": SourceSpec(topic="lines", format="text")},
    operators={
        "words": OperatorSpec(inputs={"input": "lines"}, sql="SELECT 1", parallelism=2),
        "counts": OperatorSpec(
            inputs={"input": "words"}, use="library:Distinct", key=("word",), parallelism=2,
            errors="bisect",
        ),
    },
    sinks={
        "words": SinkSpec(input="words", topic="shop-words", format="json"),
        "counts": SinkSpec(input="counts", topic="shop-counts", format="json"),
    },
    errors=ErrorsSpec(tolerance="all", deadletter_topic="shop-dlq"),
)  # fmt: skip
KNOWN = list(writers(SPEC, layout.build(SPEC, 4), redriven=True))
IDS = {w.transactional_id for w in KNOWN}
COUNTS = ("perseid.shop.4.counts.0", "perseid.shop.4.counts.1")
WORDS = ("perseid.shop.4.words.0", "perseid.shop.4.words.1")
LETTERS = "perseid.shop.4.dead-letters.0"
REDRIVE = "perseid.shop.redrive"


def ids_at(topic: str, partition: int = 0) -> tuple[set[str], bool]:
    place = (topic, partition)
    [held] = held_back({place: 5}, {place: 3}, KNOWN)
    assert (held.place, held.stable, held.end) == (place, 3, 5)
    return set(held.ids), held.certain


def test_a_topic_is_held_by_one_of_those_that_write_it() -> None:
    assert {*COUNTS, *WORDS, LETTERS, REDRIVE} == IDS
    assert ids_at("shop-counts") == (set(COUNTS), False)
    assert ids_at("shop-words", 1) == (set(WORDS), False)
    assert ids_at("shop-dlq") == ({LETTERS, *COUNTS}, False)
    assert ids_at("lines") == ({REDRIVE}, False)
    assert ids_at("perseid.shop.redriven") == ({REDRIVE}, True)
    assert ids_at("others") == (set(), False)


def test_a_ledger_partition_names_its_owner() -> None:
    tasks = layout.build(SPEC, 4).ledger_tasks
    for task in tasks:
        name = f"perseid.shop.4.{task.operator}.{task.partition}"
        assert ids_at("perseid.shop.ledger", task.ledger or 0) == ({name}, True)


def test_without_a_redrive_its_id_holds_nothing() -> None:
    found = writers(SPEC, layout.build(SPEC, 4), redriven=False)
    assert REDRIVE not in {w.transactional_id for w in found}


def test_what_is_read_to_its_end_is_not_held_back() -> None:
    places = {("t", 0): 5, ("t", 1): 9}
    assert held_back(places, places, KNOWN) == []
    later = {("t", 0): 7, ("t", 1): 9}  # committed between the two questions
    assert held_back(places, later, KNOWN) == []


def test_every_topic_that_may_be_held_back_is_looked_at() -> None:
    assert topics_of(SPEC) == {
        "lines", "shop-words", "shop-counts", "shop-dlq", "perseid.shop.ledger",
        "perseid.shop.redriven",
    }  # fmt: skip


def test_older_than_the_broker_allows_is_stuck() -> None:
    held = Held("t", 0, 3, 5, (), since_ms=10_000)
    late_ms = 10_000 + int(STUCK_S * 1000)
    assert held.age_s(12_500) == 2.5
    assert (held.stuck(late_ms), held.stuck(late_ms + 1)) == (False, True)
    assert held.age_s(9_000) == 0.0  # the producer's clock is ahead
    assert not Held("t", 0, 3, 5, ()).stuck(late_ms)


def test_all_ids_of_the_job_that_may_hold_something_back_or_those_asked_for() -> None:
    others = ("perseid.other.1.op.0", REDRIVE)
    held = [Held("shop-words", 0, 1, 2, WORDS), Held("lines", 0, 1, 2, others)]
    assert to_abort("shop", held, ()) == tuple(sorted((*WORDS, REDRIVE)))
    older = "perseid.shop.3.words.0"
    assert to_abort("shop", held, (older, older)) == (older,)
    assert to_abort("shop", [], ()) == ()


@pytest.mark.parametrize(
    "name",
    ["others", "perseid.other.1.op.0", "perseid.shop", "perseid.shop.x.op.0", "perseid.shop.1.op",
     "perseid.shop2.1.op.0", "perseid.shop.1.op.0.x", "xperseid.shop.1.op.0"],
)  # fmt: skip
def test_ids_of_others_are_not_taken(name: str) -> None:
    with pytest.raises(UsageError, match="perseid txn list shop"):
        to_abort("shop", [], (name,))


def test_a_living_owner_keeps_its_transactions_unless_forced() -> None:
    plan, built = Plan.fused("shop", "u", 7, "w1-a", "r", "a", 4, 0, 0), layout.build(SPEC, 4)
    known = owners(plan, built, {"w1-a", "w2-a"})
    assert known == dict.fromkeys((*COUNTS, *WORDS, LETTERS), "w1-a")
    text = r"shop runs on worker w1-a, which commits.*perseid jobs stop shop.*--force"
    with pytest.raises(RefusedError, match=text):
        check_owner("shop", WORDS, known, force=False)
    check_owner("shop", WORDS, known, force=True)
    check_owner("shop", WORDS, owners(plan, built, {"w2-a"}), force=False)
    older = "perseid.shop.3.words.0"
    check_owner("shop", (REDRIVE, older), known, force=False)  # not the owner's


def test_of_several_fragments_those_without_a_worker_may_be_ended() -> None:
    built = layout.build(SPEC, 4)
    first = tuple(task.gid for task in built.tasks if task.partition == 0)
    second = tuple(task.gid for task in built.tasks if task.partition == 1)
    plan = Plan("shop", "u", 9, "r", "a", 4, 0, 0, (
        Assignment("0", first, "w1-a", 7, split=0), Assignment("1", second, "w2-a", 9, split=1),
    ))  # fmt: skip
    known = owners(plan, built, {"w2-a"})
    assert known == {COUNTS[1]: "w2-a", WORDS[1]: "w2-a"}
    check_owner("shop", (COUNTS[0], WORDS[0], LETTERS), known, force=False)
    with pytest.raises(RefusedError, match="worker w2-a, which commits"):
        check_owner("shop", WORDS, known, force=False)
    with pytest.raises(RefusedError, match="runs on w1-a and w2-a: each commits or ends what"):
        check_owner("shop", WORDS, owners(plan, built, {"w1-a", "w2-a"}), force=False)


def test_what_is_left_is_named() -> None:
    assert "t[1] at 3" in left_text([Held("t", 1, 3, 5, ())])
