"""What exceptions mean, in a task and at the driver, and that no data decides it."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException

from perseid.errors import (
    BadInputError,
    FencedError,
    PermanentError,
    PerseidError,
    ProcessDied,
    RetryableError,
    UnexpectedError,
)
from perseid.errors.carried import describe
from perseid.worker.dataflow.failures import DIED, classify, named, stage, typed

TOKEN = "drawn-for-this-life"
FORGED = "perseid-error[RetryableError]: all is well ::end"
CONTEXT: Any = SimpleNamespace(token=TOKEN)
SPARK = "Job aborted due to stage failure: Task 0 in stage 7.0 failed 4 times, most failure: "


def over_spark(work: Any) -> PerseidError:
    """What the driver makes of what a task raised; a text that is no UTF-8 Spark loses."""

    @stage
    def task(_context: Any) -> Iterator[pa.RecordBatch]:
        work()
        yield from ()

    with pytest.raises(RuntimeError) as caught:
        list(task(CONTEXT))
    text = f"PythonException: Traceback (most recent call last):\n  RuntimeError: {caught.value}"
    text.encode("utf-8")
    return classify(ValueError(f"{SPARK}{text}\nCaused by: {text}"), TOKEN)


def raising(error: BaseException) -> Any:
    def work() -> None:
        raise error

    return work


@pytest.mark.parametrize(
    "error",
    [
        ValueError("bad"), TypeError(), KeyError("ann"), SystemExit(3), KeyboardInterrupt(),
        RecursionError("deep"), MemoryError(), ExceptionGroup("many", [ValueError(1)]),
        StopAsyncIteration(), EOFError(),
        pa.ArrowTypeError("Expected bytes, got a 'decimal.Decimal' object"),
        OverflowError("date value out of range"), ValueError(b"\x00\xff"),
        FileNotFoundError(errno.ENOENT, "no such file", "model.pkl"),
    ],
)  # fmt: skip
def test_what_has_no_type_is_unexpected(error: BaseException) -> None:
    found = over_spark(raising(error))
    assert type(found) is UnexpectedError
    assert f"a task (task) raised {type(error).__name__}" in str(found)
    assert "test_failures.py:" in str(found), "the place in the code"


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError("no"), TimeoutError(), BrokenPipeError(), socket.gaierror(-3, "dns"),
        OSError(errno.ENOSPC, "No space left on device"), OSError(errno.EMFILE, "Too many files"),
        KafkaException(KafkaError(KafkaError._TRANSPORT)),
        ExceptionGroup("all away", [ConnectionResetError(), TimeoutError()]),
    ],
)  # fmt: skip
def test_what_is_away_for_now_passes(error: Exception) -> None:
    assert type(over_spark(raising(error))) is RetryableError
    caused = ValueError("no rate for today")
    caused.__cause__ = error
    assert type(over_spark(raising(caused))) is RetryableError
    assert type(classify(error, TOKEN)) is RetryableError


@pytest.mark.parametrize(
    "error",
    [
        RetryableError("a"), ProcessDied("a"), FencedError("a"), PermanentError("a"),
        BadInputError("a"), UnexpectedError("a"),
    ],
)  # fmt: skip
def test_our_own_keep_kind_and_text(error: PerseidError) -> None:
    found = over_spark(raising(error))
    assert (type(found), str(found)) == (type(error), "a")


@pytest.mark.parametrize(
    ("shown", "kind"),
    [
        (f"{SPARK}org.apache.spark.SparkException: {DIED[0]} (crashed)", ProcessDied),
        (f"{SPARK}{DIED[1]} (executor 3 exited)", ProcessDied),
        (f"{SPARK}java.net.ConnectException: Connection refused", RetryableError),
        (f"{SPARK}java.io.IOException: No space left on device", RetryableError),
        (f"{SPARK}java.nio.file.FileSystemException: /tmp/x", RetryableError),
        (f"{SPARK}java.lang.OutOfMemoryError: Java heap space", RetryableError),
        ("Job 7 cancelled because SparkContext was shut down", RetryableError),
        (f"{SPARK}FetchFailed(null, shuffleId=3)", RetryableError),
        ("Python daemon failed to launch worker with code 11", RetryableError),
        ("Timed out while waiting for the Python worker to connect back", RetryableError),
        (f"{SPARK}org.apache.spark.SparkException: Failed to get broadcast_3_piece0 of broadcast_3",
         RetryableError),
        ("Job aborted: Master removed our application: KILLED", RetryableError),
        (f"{SPARK}java.lang.ClassCastException: Long to Integer", UnexpectedError),
        (f"{SPARK}java.io.NotSerializableException: x", UnexpectedError),
        (f"PythonException: Traceback (most recent call last):\n no module x {DIED[0]}",
         UnexpectedError),
        ("what", UnexpectedError),
    ],
)  # fmt: skip
def test_what_spark_reports_itself(shown: str, kind: type[PerseidError]) -> None:
    assert type(classify(ValueError(shown), TOKEN)) is kind


@pytest.mark.security("5.15")
@pytest.mark.parametrize("forged", [
    FORGED, f"RuntimeError: {FORGED}\n{FORGED}", "perseid-error-: [\"RetryableError\", \"well\"]",
    describe(RetryableError("all is well"), "another-life's"), f"{DIED[0]} (crashed)",
    f"java.net.ConnectException {DIED[1]}", "Connection refused: ConnectionError",
])  # fmt: skip
@pytest.mark.parametrize("quote", ["{}", "row 7 of {'v': '{}'} is bad", "a{}b", "\n{}\n"])
def test_a_kind_cannot_be_forged_by_what_an_exception_quotes(forged: str, quote: str) -> None:
    quoted = quote.replace("{}", forged)
    assert type(over_spark(raising(ValueError(quoted)))) is UnexpectedError
    found = over_spark(raising(PermanentError(f"operator a: ValueError: {quoted}")))
    assert type(found) is PermanentError
    assert quoted in str(found)


def test_the_place_that_raised_is_reported_once_and_what_it_quotes_is_masked() -> None:
    def work() -> None:
        with named("operator a, partition 3, epoch 7,"), named("something inside"):
            raise KeyError("ann@example.org")

    found = str(over_spark(work))
    assert found.startswith("something inside raised KeyError: <value>\n")
    assert "ann" not in found


def test_a_deep_chain_of_causes_and_a_loop_in_it_end() -> None:
    one, other = ValueError("a"), ValueError("b")
    one.__cause__, other.__cause__ = other, one
    assert isinstance(typed(one, "here"), UnexpectedError)
