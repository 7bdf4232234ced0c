"""Which rows are poison: all of them, only them, the same for everybody, and not too many."""

from __future__ import annotations

import decimal
import json
import math
import random
import re
import traceback
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from perseid.errors import BadInputError, PermanentError, RetryableError
from perseid.errors.texts import TEXT_MAX
from perseid.jobs.validation import parse
from perseid.worker.dead_letters.poison import (
    POISON_MAX,
    Inputs,
    Raised,
    Sieve,
    sieve_of,
    sift,
    stop_at,
)
from perseid.worker.dead_letters.refused import headers


def table(*numbers: int) -> Inputs:
    return {"input": pa.table({"n": pa.array(numbers, pa.int64())})}


class Picky:
    """Raises on the numbers in `bad`; remembers what it was given last, and how often."""

    def __init__(self, *bad: int) -> None:
        self.bad, self.calls, self.given = set(bad), 0, [0]

    def __call__(self, inputs: Inputs) -> None:
        self.calls += 1
        self.given = [n for t in inputs.values() for n in t["n"].to_pylist()]
        if wrong := self.bad & set(self.given):
            raise PermanentError(f"bad {min(wrong)}")


class Once:
    """Raises on any row."""

    def __call__(self, inputs: Inputs) -> None:
        if any(table.num_rows for table in inputs.values()):
            raise PermanentError("bad")


def test_good_rows_are_tried_once() -> None:
    attempt = Picky()
    assert sift(attempt, table(1, 2, 3)) == []
    assert (attempt.calls, attempt.given) == (1, [1, 2, 3])


@pytest.mark.parametrize("seed", range(30))
def test_exactly_the_bad_rows_are_found_and_the_rest_is_run_in_order(seed: int) -> None:
    chance = random.Random(seed)
    numbers = list(range(chance.randint(1, 300)))
    bad = set(chance.sample(numbers, chance.randint(1, min(len(numbers), 20))))
    attempt = Picky(*bad)
    found = sift(attempt, table(*numbers))
    assert [p.row["n"][0].as_py() for p in found] == sorted(bad)
    assert [str(p.error) for p in found] == [f"bad {n}" for n in sorted(bad)]
    assert attempt.given == [n for n in numbers if n not in bad]
    assert attempt.calls <= 2 + len(bad) * (2 + math.log2(len(numbers)))


def test_a_row_is_judged_after_those_before_it() -> None:
    def closes_what_is_open(inputs: Inputs) -> None:
        opened = set()
        for n in inputs["input"]["n"].to_pylist():
            if n < 0 and -n not in opened:
                raise PermanentError(f"{-n} is not open")
            opened.add(n)

    found = sift(closes_what_is_open, table(*range(1, 50), -25, -60, -1))
    assert [p.row["n"][0].as_py() for p in found] == [-60]


def test_what_only_the_sum_breaks_is_the_row_that_breaks_it() -> None:
    def adds(inputs: Inputs) -> None:
        if sum(inputs["input"]["n"].to_pylist()) > 100:
            raise BadInputError("the sum does not fit")

    found = sift(adds, table(60, 30, 20, 5, 10))
    assert [p.row["n"][0].as_py() for p in found] == [20, 10]


def test_rows_of_several_inputs() -> None:
    attempt = Picky(2, 12)
    inputs = {"left": table(1, 2)["input"], "right": table(11, 12, 13)["input"]}
    found = sift(attempt, inputs)
    assert [(p.input, p.row["n"][0].as_py()) for p in found] == [("left", 2), ("right", 12)]
    assert attempt.given == [1, 11, 13]


def test_what_is_not_about_a_row_stops_the_job() -> None:
    def always(_: Inputs) -> None:
        raise PermanentError("no disk")

    with pytest.raises(PermanentError, match=r"^no disk$"):
        sift(always, table(1, 2))


@pytest.mark.security("5.12")
def test_too_many_stop_the_job() -> None:
    numbers = range(5 * POISON_MAX)
    with pytest.raises(PermanentError, match="more than 100 of 500 rows"):
        sift(Picky(*numbers), table(*numbers))
    assert len(sift(Picky(*range(POISON_MAX)), table(*numbers))) == POISON_MAX


def test_an_operator_that_is_not_deterministic_stops_the_job() -> None:
    answers = iter([True, False, *[True] * 10])

    def moody(_: Inputs) -> None:
        if next(answers):
            raise PermanentError("moody")

    with pytest.raises(PermanentError, match="it is not deterministic"):
        sift(moody, table(1))


def test_a_transient_fault_is_no_poison() -> None:
    def away(_: Inputs) -> None:
        raise RetryableError("the log is away")

    with pytest.raises(RetryableError):
        sift(away, table(1, 2))


@pytest.mark.security("5.15")
def test_where_the_job_stops_the_row_is_reported_without_its_content() -> None:
    def on_secret(inputs: Inputs) -> None:
        if "secret" in inputs["input"]["word"].to_pylist():
            raise PermanentError("operator x raised")

    words = pa.table({"word": ["a", "b", "secret", "c"], "x": [1.0, math.nan, math.nan, None]})
    with pytest.raises(PermanentError) as caught:
        stop_at(on_secret, {"input": words})
    text = str(caught.value)
    assert "row 3 of 4 (of input input): {word: string of 6 characters, x: nan}" in text
    assert "errors: {operator: bisect}" in text
    assert "secret" not in text


def raising(words: list[str], is_bad: Callable[[list[str]], bool]) -> str:
    """What is reported, with tracebacks, of an operator that quotes all rows that it gets."""

    def attempt(inputs: Inputs) -> None:
        got = inputs["input"]["word"].to_pylist()
        if is_bad(got):
            try:
                raise KeyError(inputs["input"].to_pylist())
            except KeyError as error:
                raise Raised("process raised ", f"KeyError: {error}", "\nEnd") from error

    with pytest.raises(PermanentError) as caught:
        stop_at(attempt, {"input": pa.table({"word": words, "n": list(range(len(words)))})})
    return "".join(traceback.format_exception(caught.value))


@pytest.mark.security("5.15")
def test_what_an_exception_quotes_of_the_row_is_blotted_out() -> None:
    reported = raising(["ann", "bob", "secret"], lambda got: "secret" in got)
    assert "process raised KeyError: [{'word': '<word>', 'n': <n>}]\nEnd" in reported
    assert "row 3 of 3" in reported
    assert not re.search("secret|ann|bob", reported)


@pytest.mark.security("5.15")
def test_where_a_row_is_bad_only_after_others_nothing_of_them_is_reported() -> None:
    reported = raising(["ann", "bob", "secret"], lambda got: "secret" in got and "ann" in got)
    assert "process raised KeyError (its text is left out" in reported
    assert not re.search("secret|ann|bob", reported)


@pytest.mark.security("5.15")
def test_a_batch_that_cannot_be_bisected_quotes_no_row() -> None:
    calls = iter([True, False, *[True] * 9])

    def attempt(inputs: Inputs) -> None:
        if next(calls):
            try:
                raise ValueError(inputs["input"].to_pylist())
            except ValueError as error:
                raise Raised("process raised ", str(error), "") from error

    with pytest.raises(PermanentError) as caught:
        sift(attempt, {"input": pa.table({"word": ["ann", "bob"]})})
    assert "The batch was bisected: " in str(caught.value)
    assert not re.search("ann|bob", str(caught.value))


def test_a_dead_letter_of_an_exception_that_cannot_be_written_is_one() -> None:
    class Unspeakable(Exception):
        def __str__(self) -> str:
            return "half a pair \udc80 " + "x" * 2_000_000

    def attempt(inputs: Inputs) -> None:
        if inputs["input"].num_rows:
            raise Raised("", "", "") from Unspeakable()

    (letter,) = Sieve("counts", 3, ()).run(attempt, {"input": pa.table({"n": [1]})}).to_pylist()
    message = dict(headers(letter, "job", 12))["__connect.errors.exception.message"]
    assert message.startswith(rb"half a pair \udc80 x")
    assert len(message) <= TEXT_MAX


def test_a_dead_letter_has_all_that_is_needed_to_find_and_send_it_again() -> None:
    rows: dict[str, Any] = {"input": pa.table({"word": ["a", "b"], "n": [1, -1]})}

    def attempt(inputs: Inputs) -> None:
        if -1 in inputs["input"]["n"].to_pylist():
            try:
                raise ValueError("negative")
            except ValueError as error:
                raise PermanentError("process raised; the job is stopped") from error

    (letter,) = Sieve("counts", 3, ("word",)).run(attempt, rows).to_pylist()
    assert (letter["key"], letter["value"]) == (b"b", b'{"word": "b", "n": -1}')
    found = dict(headers(letter, "job", 12))
    trace = found.pop("__connect.errors.exception.stacktrace").decode()
    assert "test_poison.py" in trace
    assert 'raise ValueError("negative")' in trace
    assert found == {
        "__connect.errors.connector.name": b"job",
        "__connect.errors.stage": b"TRANSFORMATION",
        "__connect.errors.exception.class.name": b"ValueError",
        "__connect.errors.exception.message": b"negative",
        "perseid.operator": b"counts",
        "perseid.input": b"input",
        "perseid.partition": b"3",
        "perseid.epoch": b"12",
    }


JOB = """
name: job
sources:
  orders: {topic: orders-in, format: json, columns: {word: string, n: int64}}
  named: {topic: named-in, format: json, columns: {offset: int64, word: string}}
operators:
  checked: {input: orders, use: "m:C", errors: {operator: bisect}}
  both: {inputs: {left: orders, right: checked, own: named}, key: word, use: "m:C",
         errors: {operator: bisect}}
  strict: {input: orders, key: word, use: "m:C"}
sinks:
  both: {input: both, topic: out, format: json, key: word}
  strict: {input: strict, topic: out-too, format: json, key: word}
"""


def test_a_record_of_a_source_has_its_place_and_keeps_its_key() -> None:
    job = parse.loads(JOB)
    checked = sieve_of(job, "checked", 5, combined=False)
    assert checked == Sieve("checked", 5, (), {"input": "orders-in"})
    row = {"word": ["ab"], "key": [b"k\xff"], "partition": [2], "offset": [40]}
    (letter,) = checked.run(Once(), {"input": pa.table(row)}).to_pylist()
    found = dict(headers(letter, "job", 12))
    place = [found[f"__connect.errors.{n}"] for n in ("topic", "partition", "offset")]
    assert place == [b"orders-in", b"2", b"40"]
    assert (letter["key"], found["perseid.partition"]) == (b"k\xff", b"5")
    assert letter["value"] == rb'{"word": "ab", "key": "k\\xff", "partition": 2, "offset": 40}'
    without = pa.table({"word": ["ab"], "n": pa.array([decimal.Decimal("1.50")])})
    (letter,) = checked.run(Once(), {"input": without}).to_pylist()
    assert (letter["topic"], letter["key"]) == ("", None)
    assert letter["value"] == b'{"word": "ab", "n": "1.50"}'


def test_only_rows_that_are_records_have_a_place() -> None:
    job = parse.loads(JOB)
    both = sieve_of(job, "both", 0, combined=False)
    assert both == Sieve("both", 0, ("word",), {"left": "orders-in"})
    assert sieve_of(job, "both", 0, combined=True) == Sieve("both", 0, ("word",))
    assert sieve_of(job, "strict", 0, combined=False) is None


@pytest.mark.security("5.15")
def test_a_row_with_a_time_that_python_has_no_value_for_is_reported_and_becomes_a_letter() -> None:
    far = pa.array([0, 2**62]).cast(pa.timestamp("us", "UTC"))
    rows: Inputs = {"input": pa.table({"n": [1, -1], "at": far, "each": [[1], [2]]})}

    def attempt(inputs: Inputs) -> None:
        if -1 in inputs["input"]["n"].to_pylist():
            raise PermanentError("bad \ud800")

    with pytest.raises(PermanentError, match=r"{n: int64, at: timestamp\[us, tz=UTC\], each: li"):
        stop_at(attempt, rows)
    (letter,) = Sieve("counts", 3, ("n",)).run(attempt, rows).to_pylist()
    assert (letter["key"], letter["reason"]) == (b"-1", "bad \\ud800")
    value = json.loads(letter["value"])
    assert value == {"n": -1, "at": value["at"], "each": [2]}
    assert value["at"].startswith("148108-")
    assert dict(headers(letter, "job", 12))["__connect.errors.exception.message"] == b"bad \\ud800"
