"""Bad input, changed jobs and changed topics on a whole cluster: clear errors, nothing lost."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import psutil
import pytest

from perseid.testing.running import RunningCluster
from perseid.testing.stack import example, lines
from perseid.testing.verify import verify_wordcount
from perseid.testing.verify.read import read_topic
from perseid.testing.wait import until
from perseid.topics.admin import TopicAdmin

BAD = b"\xff\xfe not UTF-8"


def wordcount(folder: Path, name: str, more: dict[str, str] | None = None) -> Path:
    names = {
        "name: wordcount": f"name: {name}",
        "topic: lines": f"topic: {name}-lines",
        "topic: word-counts": f"topic: {name}-counts",
    }
    return example(folder, "wordcount", {**names, **(more or {})})


def state_logs(running: RunningCluster, name: str) -> Path:
    """Those of all owners and layouts of the job."""
    return Path(running.cluster.deployment.state, running.job(name)["uuid"])


def good_lines_verdict(running: RunningCluster, name: str) -> bool:
    """The counts of all lines that can be decoded, compared with the last record of each word."""
    sent = [r.value or b"" for r in read_topic(running.kafka, f"{name}-lines")]
    wanted = Counter(w for line in sent if line != BAD for w in line.decode().split(" "))
    counts: dict[str, int] = {}
    for record in read_topic(running.kafka, f"{name}-counts"):
        row = json.loads(record.value or b"")
        assert row["n"] > counts.get(row["word"], 0), f"{row} after {counts[row['word']]}"
        counts[row["word"]] = row["n"]
    return counts == wanted


@pytest.mark.drawn(group="changes")
def test_an_undecodable_record_stops_the_job_until_it_is_changed(
    running: RunningCluster, tmp_path: Path
) -> None:
    running.topic("bad-lines")
    running.do("jobs", "apply", str(wordcount(tmp_path / "bad", "bad")))
    running.produce("bad-lines", lines(500, 1))
    running.wait_caught_up("bad")
    running.produce("bad-lines", [*lines(300, 2), BAD, *lines(300, 3)])
    failed = running.wait_job("bad", lambda j: j["state"] == "failed", "failed")
    for printed in ("bad-lines", "partition", "offset", "not valid UTF-8"):
        assert printed in failed["error"]["text"], failed["error"]
    shown = running.do("jobs", "show", "bad")
    assert "perseid jobs apply" in json.dumps(shown)

    tolerant = {"errors: {tolerance: none}":
                "errors: {tolerance: all, deadletterqueue: {topic: bad-dlq}}"}  # fmt: skip
    running.do("jobs", "apply", str(wordcount(tmp_path / "tolerant", "bad", tolerant)))
    running.wait_caught_up("bad")
    assert good_lines_verdict(running, "bad")
    [letter] = list(read_topic(running.kafka, "bad-dlq"))
    assert letter.value == BAD
    headers = dlq_headers(running, "bad-dlq")
    assert headers["__connect.errors.topic"] == b"bad-lines"
    assert int(headers["__connect.errors.offset"]) >= 0
    running.do("jobs", "remove", "bad", "--purge")


def dlq_headers(running: RunningCluster, topic: str) -> dict[str, bytes]:
    from confluent_kafka import Consumer, TopicPartition

    reader = Consumer({"bootstrap.servers": running.kafka, "group.id": "headers"})
    reader.assign([TopicPartition(topic, 0, 0)])
    message = reader.poll(30)
    assert message is not None
    assert message.error() is None
    reader.close()
    found = message.headers() or []
    assert isinstance(found, list)
    return {name: value if isinstance(value, bytes) else b"" for name, value in found}


STUCK = """name: NAME
sources: {lines: {topic: NAME-lines, format: text}}
operators: {counts: {input: lines, key: value, use: "NAME:Counts"}}
sinks: {counts: {input: counts, topic: NAME-counts, format: json, key: value}}
epoch: {timeout: "10s"}
"""
STUCK_CODE = """import os
import signal
from pathlib import Path
from perseid.jobs import Operator, Table, pa

class Counts(Operator):
    output = pa.schema([("value", pa.string()), ("n", pa.int64())])
    total = Table(key=pa.string(), n=pa.int64())

    def process(self, batch, out):
        if "BAD" in batch["value"].to_pylist():
            DOES
        out.emit(self.total.add(batch["value"], n=1).rename_columns(["value", "n"]))
"""


class Stuck:
    """A job whose operator `does` something at the line `bad`, which lies in its second epoch."""

    def __init__(
        self, running: RunningCluster, folder: Path, name: str, bad: str, does: str
    ) -> None:
        self._running, self._folder, self._name = running, folder, name
        self._code = STUCK_CODE.replace("BAD", bad).replace("DOES", does)
        self._bad = f'"{bad}" in'
        running.topic(f"{name}-lines")
        (folder / "job.yaml").write_text(STUCK.replace("NAME", name))
        self._apply(self._code)
        running.produce(f"{name}-lines", [word.encode() for word in "a b a c a b".split()])
        running.wait_caught_up(name)
        running.produce(f"{name}-lines", [b"a", bad.encode(), b"d"])

    def _apply(self, code: str) -> None:
        (self._folder / f"{self._name}.py").write_text(code)
        self._running.do("jobs", "apply", str(self._folder))

    def correct(self) -> dict[str, int]:
        """Applies code without it; the last count of each line, none of which came twice."""
        assert self._bad in self._code
        self._apply(self._code.replace(self._bad, "False and"))
        self._running.wait_caught_up(self._name)
        rows = self._running.rows(f"{self._name}-counts")
        assert len({(row["value"], row["n"]) for row in rows}) == len(rows)
        return {row["value"]: row["n"] for row in rows}


def test_an_operator_that_never_returns_fails_its_job_until_it_is_changed(
    running: RunningCluster, tmp_path: Path
) -> None:
    pid_file = tmp_path / "pid"
    does = f"Path({str(pid_file)!r}).write_text(str(os.getpid()))\n            while True: pass"
    stuck = Stuck(running, tmp_path, "hang", "hang", does)
    failed = running.wait_job("hang", lambda j: j["state"] == "failed", "failed")
    assert failed["error"]["kind"] == "EpochTimeout"
    assert "it reads hang-lines[" in failed["error"]["text"]
    pid = int(pid_file.read_text())
    until(lambda: not psutil.pid_exists(pid), 30, "the operator's process ends")
    assert stuck.correct() == {"a": 4, "b": 2, "c": 1, "d": 1, "hang": 1}
    running.do("jobs", "remove", "hang", "--purge")


def test_processes_that_die_in_an_epoch_give_it_to_the_corrected_revision(
    running: RunningCluster, tmp_path: Path
) -> None:
    """Native code that crashes is no error that would end the job: it is retried without end."""
    stuck = Stuck(running, tmp_path, "dying", "crash", "os.kill(os.getpid(), signal.SIGSEGV)")
    tried = running.wait_job("dying", lambda j: j["failures"] > 0, "its process has died")
    assert tried["state"] != "failed"
    assert stuck.correct() == {"a": 4, "b": 2, "c": 1, "d": 1, "crash": 1}
    assert "so revision " in json.dumps(running.do("jobs", "show", "dying")["events"])
    running.do("jobs", "remove", "dying", "--purge")


@pytest.mark.drawn(group="changes")
def test_a_changed_job_keeps_its_state_and_a_removed_one_starts_again(
    running: RunningCluster, tmp_path: Path
) -> None:
    running.topic("chg-lines", 2)
    folder = wordcount(tmp_path / "chg", "chg")
    running.do("jobs", "apply", str(folder))
    running.produce("chg-lines", lines(1000, 1))
    running.wait_caught_up("chg")
    source = (folder / "wordcount.py").read_text()
    (folder / "wordcount.py").write_text(source + "\n# another revision\n")
    before = running.job("chg")["revision"]
    running.do("jobs", "apply", str(folder))
    running.produce("chg-lines", lines(1000, 2))
    running.wait_job("chg", lambda j: j["revision"] != before, "switched")
    TopicAdmin(running.kafka).grow("chg-lines", 4)
    running.produce("chg-lines", lines(1000, 3))
    running.wait_caught_up("chg")
    verdict = verify_wordcount(running.kafka, "chg-lines", "chg-counts")
    assert verdict.ok, verdict

    renamed = {"  counts: {input: words": "  counted: {input: words",
               "counts: {input: counts": "counts: {input: counted"}  # fmt: skip
    refused = wordcount(tmp_path / "other", "chg", renamed)
    answer = running.run("jobs", "apply", str(refused))
    assert answer.code == 3, answer
    assert "its state would be lost" in json.dumps(answer.document) + answer.stderr

    running.do("jobs", "stop", "chg", "--checkpoint")
    running.produce("chg-lines", lines(500, 4))
    running.do("jobs", "start", "chg")
    running.wait_caught_up("chg")
    verdict = verify_wordcount(running.kafka, "chg-lines", "chg-counts")
    assert verdict.ok, verdict

    ended, logs = running.job("chg")["epoch"], state_logs(running, "chg")
    assert logs.is_dir()
    running.do("jobs", "remove", "chg")
    TopicAdmin(running.kafka).delete(["chg-counts"])
    running.do("jobs", "apply", str(folder))
    running.wait_caught_up("chg", above_epoch=ended)
    until(lambda: not logs.exists(), 90, "the removed job's state logs to be deleted")
    assert state_logs(running, "chg").is_dir()
    verdict = verify_wordcount(running.kafka, "chg-lines", "chg-counts")
    assert verdict.ok, verdict
    running.do("jobs", "remove", "chg", "--purge")


def test_a_re_created_source_topic_is_one_clear_error(
    running: RunningCluster, tmp_path: Path
) -> None:
    running.topic("gone-lines", 2)
    running.do("jobs", "apply", str(wordcount(tmp_path / "gone", "gone")))
    running.produce("gone-lines", lines(200, 1))
    running.wait_caught_up("gone")
    TopicAdmin(running.kafka).delete(["gone-lines"])
    running.topic("gone-lines", 2)
    running.produce("gone-lines", lines(500, 2))
    failed = running.wait_job("gone", lambda j: j["state"] == "failed", "failed")
    assert failed["error"]["kind"] in {"TopicIdentityChanged", "PermanentError"}, failed["error"]
    assert "gone-lines" in failed["error"]["text"]
    running.do("jobs", "remove", "gone", "--purge")


def test_sql_that_is_not_row_wise_is_refused_with_what_to_write(
    running: RunningCluster, tmp_path: Path
) -> None:
    running.topic("plain-lines", 1)
    counted = {"SELECT explode(split(value, ' ')) AS word FROM input":
               "SELECT DISTINCT value AS word FROM input"}  # fmt: skip
    ran = running.run("jobs", "apply", str(wordcount(tmp_path / "plain", "plain", counted)))
    assert ran.code == 1
    assert "row-wise" in ran.document["error"]["message"]
    assert running.job("plain") == {}


@pytest.mark.drawn(group="changes")
def test_sql_that_raises_on_a_record_stops_the_job_until_it_is_corrected(
    running: RunningCluster, tmp_path: Path
) -> None:
    """The corrected query computes that very epoch: no line is lost, none counted twice."""
    plain = "SELECT explode(split(value, ' ')) AS word FROM input"
    fragile = f"{plain} WHERE length(value) <> 9 OR CAST(value AS INT) IS NOT NULL"
    running.topic("raise-lines")
    running.do("jobs", "apply", str(wordcount(tmp_path / "1", "raise", {plain: fragile})))
    running.produce("raise-lines", lines(300, 1))
    running.wait_caught_up("raise")
    running.produce("raise-lines", [*lines(300, 2), b"secret yz", *lines(300, 3)])
    failed = running.wait_job("raise", lambda j: j["state"] == "failed", "failed")
    printed = failed["error"]["text"]
    assert (
        "operator words: its SQL raised CAST_INVALID_INPUT (SQLSTATE 22018) at line 1," in printed
    )
    assert f"on a record of epoch {failed['error']['epoch'] + 1} " in printed
    assert "try_cast" in printed

    misspelt = plain.replace("value", "valu")
    ran = running.run("jobs", "apply", str(wordcount(tmp_path / "2", "raise", {plain: misspelt})))
    assert ran.code == 1
    assert "SQL of operator words: [UNRESOLVED_COLUMN" in ran.document["error"]["message"]

    running.do("jobs", "apply", str(wordcount(tmp_path / "3", "raise")))
    running.wait_caught_up("raise", above_epoch=failed["error"]["epoch"])
    verdict = verify_wordcount(running.kafka, "raise-lines", "raise-counts")
    assert verdict.ok, verdict
    counts = [json.loads(r.value or b"") for r in read_topic(running.kafka, "raise-counts")]
    assert [row["n"] for row in counts if row["word"] == "secret"] == [1]
    text = "".join(running.logs().values())
    assert "CAST_INVALID_INPUT" in text
    assert "secret yz" not in text + json.dumps(failed)
    running.do("jobs", "remove", "raise", "--purge")
