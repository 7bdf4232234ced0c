"""The environment of a process, and where a sink names it: known of every epoch in a ledger."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perseid.coordinator.trimming import ledger_cut
from perseid.replay.recorded import Environments
from perseid.testing.kafka import FakeLogReader, FakeTopics, FakeTransactions, ModelKafka
from perseid.topics import codec
from perseid.topics.ledger import LedgerReader
from perseid.topics.records import LedgerRecord
from perseid.worker.process import environment
from perseid.worker.sink.transaction import SinkIdentity, SinkSession

LEDGER = ("perseid.job.ledger", 0)
WHO = SinkIdentity("job", "u", 1, "op", 0, ledger=0, after_epoch=0)


def test_it_names_versions_processor_and_lock(tmp_path: Path) -> None:
    import numpy as np

    plain = environment.of(tmp_path / "without")
    assert plain["python"] == ".".join(map(str, sys.version_info[:3]))
    assert plain["numpy"] == np.__version__
    assert {"libc", "machine", "pandas", "pyarrow", "pyspark", "arrow_simd"} < plain.keys()
    assert plain["cpu"] == " ".join(sorted(plain["cpu"].split())) != ""
    assert all(plain.values())
    assert "lock" not in plain
    (tmp_path / "requirements.txt").write_bytes(b"six==1.16.0\n")
    found = environment.of(tmp_path)
    assert found == {**plain, "lock": hashlib.sha256(b"six==1.16.0\n").hexdigest()}


def test_instructions_that_libraries_do_not_use_are_not_named() -> None:
    code = (
        "from pathlib import Path; from perseid.worker.process import environment as e; "
        "found = e.of(Path('none')); print(found['arrow_simd'], '/', found['cpu'])"
    )
    limits = {"ARROW_USER_SIMD_LEVEL": "NONE"}
    ran = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **limits}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert ran.stdout.startswith("none / ")


@pytest.fixture
def kafka() -> ModelKafka:
    kafka = ModelKafka()
    FakeTopics(kafka).create(LEDGER[0], 1, {})
    return kafka


def session(kafka: ModelKafka, name: str) -> SinkSession:
    topics = FakeTopics(kafka)
    ledger = LedgerReader(FakeLogReader(kafka), topics)
    return SinkSession(
        WHO, FakeTransactions(kafka), ledger, topics, clock=kafka.clock,
        environment=lambda: {"cpu": name},
    )  # fmt: skip


def records(kafka: ModelKafka) -> list[LedgerRecord]:
    end = kafka.log(*LEDGER).end
    return [codec.decode_ledger(LEDGER, r.offset, r.value or b"")
            for r in kafka.readable(*LEDGER, 0, end)]  # fmt: skip


def named(kafka: ModelKafka) -> dict[int, str]:
    return {r.epoch: r.environment["cpu"] for r in records(kafka) if r.environment}


def test_a_writer_names_it_once_and_after_each_checkpoint(kafka: ModelKafka) -> None:
    sink = session(kafka, "one")
    for epoch in range(1, 10):
        sink.commit(epoch, epoch, 1, [], checkpoint=epoch in {4, 7})
    assert named(kafka) == {1: "one", 5: "one", 8: "one"}


def test_another_writer_names_its_own(kafka: ModelKafka) -> None:
    one, two = session(kafka, "one"), session(kafka, "two")
    for epoch, sink in enumerate([one, one, two, two, one, one], 1):
        sink.commit(epoch, epoch, 1, [])
    assert named(kafka) == {1: "one", 3: "two", 5: "one"}


def test_a_session_that_did_not_hear_of_its_commit_names_it_again(kafka: ModelKafka) -> None:
    sink = session(kafka, "one")
    sink.commit(1, 1, 1, [])
    kafka.fail("commit", "unanswered")
    assert sink.commit(2, 2, 1, [], checkpoint=True).skipped
    sink.commit(3, 3, 1, [])
    sink.commit(4, 4, 1, [])
    assert named(kafka) == {1: "one", 3: "one"}


@pytest.mark.parametrize("kept", [4, 7])
def test_of_a_trimmed_ledger_it_is_known_from_the_first_record_on(
    kafka: ModelKafka, kept: int
) -> None:
    sink = session(kafka, "one")
    for epoch in range(1, 10):
        sink.commit(epoch, epoch, 1, [], checkpoint=epoch in {4, 7})
    found = records(kafka)
    cut = ledger_cut(((at, r.epoch) for at, r in enumerate(found)), kept)
    environments = Environments("u", 1, kept)
    for record in found[cut:]:
        environments.committed(record)
    assert environments.upto(9) == {"cpu": "one"}


def test_a_record_without_one_is_as_it_was() -> None:
    plain = LedgerRecord("u", 1, "op", 0, 1, 2, 3)
    more = LedgerRecord("u", 1, "op", 0, 1, 2, 3, (), {"cpu": "one"})
    assert codec.decode(codec.encode(plain)) == plain
    assert codec.decode(codec.encode(more)) == more
    assert codec.encode(more)[10:].startswith(codec.encode(plain)[10:])
