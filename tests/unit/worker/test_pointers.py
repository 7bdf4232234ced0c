"""Dead letters that do not fit into their topic: a pointer to the record goes there instead."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from perseid.cli import dead_letters
from perseid.cli.dead_letters import Origin
from perseid.errors import PermanentError
from perseid.jobs.model.spec import JobSpec, SourceSpec
from perseid.testing.kafka import FakeMessage
from perseid.testing.kafka_model import ModelRecord
from perseid.topics.admin import MESSAGE_BYTES_MAX, TopicInfo
from perseid.topics.transactions import SinkBatch
from perseid.worker.dead_letters import refused
from perseid.worker.sink.pointers import KEY_BYTES, VALUE_BYTES, fitted
from perseid.worker.sink.sink_outputs import divide, record_batch_bytes

ROW: dict[str, Any] = {
    "topic": "t" * 249, "partition": 1, "offset": 2**40, "kind": "BadInputError",
    "reason": "no JSON", "operator": None, "input": "orders", "operator_partition": 0,
    "trace": "Traceback " * 9000,
}  # fmt: skip


def letters(value: bytes | None, key: bytes | None = None, **row: Any) -> SinkBatch:
    reported = refused.headers({**ROW, "key": key, "value": value, **row}, "shop", 9)
    return SinkBatch("dlq", [key], [value], [reported], letters=True)


def size(batch: SinkBatch) -> int:
    ((key, value, headers),) = zip(
        batch.keys.to_pylist(), batch.values.to_pylist(), batch.headers or [()], strict=True
    )
    return record_batch_bytes(key, value, headers)


def read(batch: SinkBatch) -> dead_letters.Letter:
    headers = [(name, data) for name, data in (batch.headers or [()])[0]]
    key, value = batch.keys[0].as_py(), batch.values[0].as_py()
    return dead_letters.letter_of("dlq", 0, FakeMessage(ModelRecord(3, key, value, headers, 1000)))


def test_a_letter_that_fits_to_the_byte_is_whole_and_one_byte_more_makes_a_pointer() -> None:
    room = MESSAGE_BYTES_MAX - size(letters(b"x" * 1_000_000)) + 1_000_000
    whole = letters(b"x" * room)
    assert size(whole) == MESSAGE_BYTES_MAX
    assert fitted(whole, MESSAGE_BYTES_MAX) is whole
    cut = fitted(letters(b"x" * (room + 1)), MESSAGE_BYTES_MAX)
    found = read(cut)
    assert found.value == b"x" * 1024
    assert found.whole_bytes == room + 1
    assert found.origin == Origin("t" * 249, 1, 2**40)
    assert (found.job, found.reason) == ("shop", "no JSON")


@pytest.mark.parametrize("bytes_max", [1100, 2000, 5000, 100_000])
@pytest.mark.parametrize("operator", [None, "counts"])
def test_a_pointer_fits_whatever_is_large(bytes_max: int, operator: str | None) -> None:
    big = "ä".encode() * 1_000_000
    for value, key in ((big, None), (None, big), (big, big)):
        cut = fitted(letters(value, key, reason="é" * 5000, operator=operator), bytes_max)
        assert size(cut) <= bytes_max
        assert read(cut).origin == Origin("t" * 249, 1, 2**40)
        assert divide([cut], {"dlq": TopicInfo("dlq", "i", 1, message_bytes_max=bytes_max)}, 0)
        headers = dict((cut.headers or [()])[0])
        assert int(headers[VALUE_BYTES]) == len(value or b"")
        if key is not None:
            assert int(headers[KEY_BYTES]) == len(big)
        headers["__connect.errors.exception.message"].decode()  # no half characters


def test_only_letters_that_are_too_large_are_cut() -> None:
    one, two = letters(b"small"), letters(b"x" * 3000)
    both = SinkBatch(
        "dlq", [None, None], [b"small", b"x" * 3000], [*(one.headers or ()), *(two.headers or ())],
        letters=True,
    )  # fmt: skip
    cut = fitted(both, 2500)
    assert cut.values.to_pylist() == [b"small", b"x" * 1024]
    assert cut.letters


def test_a_topic_that_takes_no_pointer_either_is_named_as_the_dead_letter_topic() -> None:
    infos = {"dlq": TopicInfo("dlq", "i", 1, message_bytes_max=300)}
    with pytest.raises(PermanentError, match=r"counts.*the dead-letter topic takes 300.*kafka-con"):
        divide([fitted(letters(b"x" * 999), 300)], infos, 0, "operator counts, partition 0")


def test_a_pointer_is_redriven_with_the_record_that_is_read_back_or_refused() -> None:
    sources = {"orders": SourceSpec(topic="orders", format="json", columns={"n": "int64"})}
    spec = JobSpec(name="shop", parallelism=1, sources=sources, operators={}, sinks={})
    info = TopicInfo("orders", "i", 2)
    cut = read(fitted(letters(b"{" * 9000, topic="orders", operator="sums"), 5000))
    refusal = dead_letters.refusal(cut, spec, info, transformed=False)
    assert refusal is not None
    assert "a pointer to a record of 9000 bytes, and that is no longer at orders[1]" in refusal
    back = dead_letters.read_back(cut, b"k", b"the record")
    assert dead_letters.refusal(back, spec, info, transformed=False) is None
    assert dead_letters.original(back, spec) == b"the record"


def test_what_fits_only_without_the_headers_of_a_redrive_goes_without() -> None:
    info = TopicInfo("orders", "i", 2, message_bytes_max=1000)
    letter = replace(read(letters(b"v")), value=b"x" * 900)
    whole = dead_letters.fitting(dead_letters.target(letter, b"x" * 500), info)
    assert len(whole.headers) == 3
    bare = dead_letters.fitting(dead_letters.target(letter, b"x" * 920), info)
    assert bare.headers == []
    assert dead_letters.too_large(bare, info) is None
