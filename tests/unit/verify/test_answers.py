"""The judge of benchmarks in which every record is answered, against answers made by hand."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from perseid.testing.meter import answers
from perseid.testing.meter.answers import AnswerCheck
from perseid.testing.meter.live import Ages, stamp_ns
from perseid.testing.payments import JOBS, Payments
from perseid.testing.verify.read import Record
from perseid.testing.verify.verdict import Verdict

PAYMENTS = [("a", 5), ("b", 700), ("a", 100), ("a", -2), ("b", 99)]
SUMS = [5, 700, 105, 103, 799]


def record(offset: int, value: dict[str, Any], time_ms: int = 0, partition: int = 0) -> Record:
    key = value["account"].encode()
    return Record(partition, offset, key, json.dumps(value).encode(), time_ms)


def source() -> list[Record]:
    return [
        record(i, {"account": account, "amount": amount, "sent": i})
        for i, (account, amount) in enumerate(PAYMENTS)
    ]


def balances() -> list[dict[str, Any]]:
    return [
        {"account": account, "amount": amount, "sent": i, "sum": total}
        for i, ((account, amount), total) in enumerate(zip(PAYMENTS, SUMS, strict=True))
    ]


def judged(answers: Iterable[Record], *, job: str = "balances", complete: bool = True) -> Verdict:
    check = AnswerCheck(JOBS[job]())
    for answer in answers:
        check.output(answer)
    check.input([source()], complete=complete)
    return check.verdict()


def test_right_answers_are_right_in_any_order_of_the_keys() -> None:
    rows = balances()
    shuffled = [rows[i] for i in (1, 0, 2, 4, 3)]
    found = judged(record(i, row) for i, row in enumerate(shuffled))
    assert found.ok
    assert (found.records, found.output_records) == (5, 5)


def test_answers_that_are_cut_off_are_lost_only_where_all_are_asked_for() -> None:
    answers = [record(i, row) for i, row in enumerate(balances()[:3])]
    assert judged(answers).lost == 2
    cut = judged(answers, complete=False)
    assert cut.ok
    assert cut.records == 3  # it reads no further


@pytest.mark.parametrize("complete", [True, False])
@pytest.mark.parametrize(
    ("places", "changes", "kind", "text"),
    [
        ((0, 1, 3, 4), {}, "wrong", "answer 2 to 'a' is not"),  # one within is missing
        ((0, 1, 3, 2, 4), {}, "wrong", "answer 2 to 'a' is not"),  # out of order
        ((0, 1, 2, 3, 4, 4), {}, "duplicated", "1 answers more"),
        ((0, 1, 2, 3, 4), {"sum": 700.0}, "wrong", "answer 1 to 'b' is not"),
        ((0, 1, 2, 3, 4), {"sent": 7}, "wrong", "answer 1 to 'b' is not"),
        ((0, 1, 2, 3, 4), {"more": 1}, "wrong", "answer 1 to 'b' is not"),
        ((0, 1, 2, 3, 4), {"account": "c"}, "duplicated", "1 answers more"),
    ],
)
def test_faults_are_found(
    places: tuple[int, ...], changes: dict[str, Any], kind: str, text: str, complete: bool
) -> None:
    rows = balances()
    rows[1] |= changes
    found = judged((record(i, rows[p]) for i, p in enumerate(places)), complete=complete)
    assert getattr(found, kind) >= 1
    assert any(text in example for example in found.examples)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (Record(0, 0, b"a", b"no json"), "no answer"),
        (Record(0, 0, b"a", None), "no answer"),
        (Record(0, 0, b"a", b"[]"), "no answer"),
        (Record(0, 0, b"x", b'{"account": "a"}'), "under key b'x'"),
    ],
)
def test_what_is_no_answer_is_wrong(answer: Record, text: str) -> None:
    found = judged([answer])
    assert found.wrong >= 1
    assert text in found.examples[0]


def test_of_a_cut_run_a_partition_is_read_until_nothing_is_answered_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answers, "UNANSWERED_RECORDS", 3)
    first = [record(i, {"account": "a", "amount": 1, "sent": i}) for i in range(100)]
    second = [record(i, {"account": "b", "amount": 1, "sent": i}, partition=1) for i in range(100)]
    check = AnswerCheck(JOBS["balances"]())
    for account, n in (("a", 2), ("b", 5)):
        for i in range(n):
            row = {"account": account, "amount": 1, "sent": i, "sum": i + 1}
            check.output(record(i, row))
    check.input([first, second], complete=False)
    found = check.verdict()
    assert found.ok
    assert found.records == (2 + 3) + 5


def test_a_key_in_two_partitions_has_no_order() -> None:
    rows = balances()
    answers = [record(i, row, partition=i % 2) for i, row in enumerate(rows)]
    assert "is in 0 too" in " ".join(judged(answers).examples)


def test_only_some_accounts_are_looked_into_but_all_are_counted() -> None:
    rows = balances()
    rows[1] |= {"sum": 0}
    for judged, wrong in ((b"a", 0), (b"xb", 1)):
        check = AnswerCheck(JOBS["balances"](), judged)
        for i, row in enumerate(rows):
            check.output(record(i, row))
        check.input([source()], complete=True)
        found = check.verdict()
        assert (found.wrong, found.lost, found.output_records) == (wrong, 0, 5)


def test_enriched_payments() -> None:
    right = [
        {"account": "b", "amount": 700, "sent": 1, "cents": 70_000, "large": True},
        {"account": "a", "amount": 100, "sent": 2, "cents": 10_000, "large": False},
    ]
    answers = [record(i, row) for i, row in enumerate(right)]
    assert judged(answers, job="enrich").ok
    right[1]["large"] = 0  # equal to False, but no boolean
    answers = [record(i, row) for i, row in enumerate(right)]
    assert judged(answers, job="enrich").wrong == 1


def test_the_rate_leaves_the_warm_up_out() -> None:
    check = AnswerCheck(JOBS["balances"]())
    row = {"account": "a", "amount": 1, "sent": 0, "sum": 1}
    for second in range(21):  # 100 at once, then one a second
        for _ in range(100 if second == 0 else 1):
            check.output(record(0, row, time_ms=1_000 * second))
    assert check.rate(warm_up_s=10, window_s=60) == (1.0, 10.0)
    assert check.rate(warm_up_s=10, window_s=4) == (1.0, 4.0)
    assert check.rate(warm_up_s=30, window_s=4) == (0.0, 0.0)


def test_payments_have_the_promised_shape_and_depend_on_the_seed_alone() -> None:
    block = Payments(3).block(201)
    assert block == Payments(3).block(1) != Payments(4).block(1)
    payment = json.loads(block[0]["value"])
    assert list(payment) == ["account", "amount", "sent"]
    assert payment["account"].encode() == block[0]["key"]
    before = [m["value"] for m in block]
    stamped = [json.loads(m["value"]) for m in Payments.stamped(block)]
    assert [m["value"] for m in block] == before
    assert [{**p, "sent": 0} for p in stamped] == [json.loads(v) for v in before]
    assert [p["sent"] - stamped[0]["sent"] for p in stamped] == list(range(len(block)))


def test_ages_are_of_what_was_sent_within_the_window() -> None:
    ages = Ages(warm_up_s=10, seconds=5, partitions=2)
    second = 1_000_000_000
    start = 1_000 * second
    for tick in range(30):  # each record is two seconds old
        now = start + tick * second
        ages.arrived(now, tick % 2, now - 2 * second)
        assert ages.done(now) == (tick >= 22)  # both partitions are past at 18, three seconds ago
        if ages.done(now):
            break
    assert ages.summary() == {"samples": 5, "p50_ms": 2000.0, "p99_ms": 2000.0, "max_ms": 2000.0}


def test_ages_end_when_nothing_comes_any_more() -> None:
    ages = Ages(warm_up_s=1, seconds=1, partitions=1)
    second = 1_000_000_000
    assert not ages.done(10**20)  # nothing has come yet
    ages.arrived(second, 0, 0)
    assert not ages.done(32 * second)
    assert ages.done(34 * second)
    assert ages.summary() == {"samples": 0}


@pytest.mark.parametrize(
    ("value", "stamp"),
    [({"sent": 5}, 5), ({"word": "@17", "n": 1}, 17), ({"word": "x", "n": 1}, 0)],
)
def test_stamps(value: dict[str, Any], stamp: int) -> None:
    assert stamp_ns(value) == stamp
