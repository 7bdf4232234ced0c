"""`perseid state`: rows, the one partition of a key, and clear answers to wrong questions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from perseid.cli import jobs, state
from perseid.clocks import ManualClock
from perseid.jobs.environments import loading
from perseid.jobs.model.trees import archive, sha256
from perseid.jobs.operations.applying import Cluster
from perseid.jobs.operator import Emitter, Identity, Operator
from perseid.jobs.repository import job_folders
from perseid.jobs.validation import parse
from perseid.records import JobEntry, Plan
from perseid.registry import codec, paths
from perseid.registry.facade import Registry
from perseid.registry.port import Create
from perseid.state import Pool, Table, Value
from perseid.state.durability import blob
from perseid.state.durability.files import LocalFiles
from perseid.state.durability.log import StateLog
from perseid.state.durability.owners import adopt, log_directory, owner_directory, owner_name
from perseid.state.primitives.primitive import bind
from perseid.testing.kafka import FakeTopics, ModelKafka
from perseid.testing.registry import FakeZooKeeper
from perseid.testing.store import MemoryStore
from perseid.topics.records import Token
from perseid.worker.dataflow.partition import partitions
from perseid.worker.epoch.partition_state import PartitionState

JOB, OWNER = "wordcount", owner_name(1, "w1-a")
COUNT = 4
WORDS = {f"w{i}": i + 1 for i in range(40)}
Run = Callable[..., Any]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state logs of a wordcount at epoch 3; the registry and store that go with them."""
    folder = job_folders.example(JOB)
    registry, store = Registry(FakeZooKeeper().session()), MemoryStore()
    files = {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}
    sha = sha256(archive(files))
    store.write(f"archives/{sha}.tar", [archive(files)])
    registry.put_job_entry(JobEntry(JOB, "u1", "r", sha, "running", 1, 0), None)
    plan = Plan.fused(JOB, "u1", 1, "w1-a", "r", sha, 1, 0, 0)
    registry.coordination.write(Create(paths.plan(JOB), codec.encode(plan)))
    cluster = Cluster(registry, FakeTopics(ModelKafka()), store, ManualClock())

    @contextmanager
    def connected(_data: Path | None) -> Iterator[Cluster]:
        yield cluster

    monkeypatch.setattr(jobs, "connected", connected)
    monkeypatch.setattr(state, "root_of", lambda _: str(tmp_path))
    adopt(LocalFiles(), str(tmp_path), "u1", 1, OWNER)
    for partition in range(COUNT):
        fill(folder, str(tmp_path), partition)
    return tmp_path


def fill(folder: Path, root: str, partition: int) -> None:
    spec = parse.load(folder).operators["counts"]
    operator = loading.load(spec, folder)()
    operator.open(Identity(JOB, "counts", partition, COUNT), {})
    directory = log_directory(owner_directory(root, "u1", 1, OWNER), "counts", partition)
    log = StateLog(LocalFiles(), directory, blob.Identity("u1", 1, "counts", partition))
    log.create()
    log.write_snapshot(0, 1, 0, {})
    words = pa.table({"word": list(WORDS), "n": list(WORDS.values())})
    mine = words.filter(pa.array(partitions(words, ("word",), COUNT) == partition))
    live = PartitionState(operator, bind(operator), log)
    for epoch in (1, 2, 3):
        token = Token(1, "u1", epoch, epoch - 1, "r", 1, (), 0)
        rows = mine if epoch == 1 else mine.slice(0, 0)
        live.run(token, epoch, 1, {"input": rows}, Emitter("counts"))


@pytest.fixture
def run(root: Path, run: Run) -> Run:
    return partial(run, "state", JOB)


def test_all_rows_with_their_partitions(run: Run) -> None:
    document = run("counts", "--limit", "100", "--json")
    assert (document["epoch"], document["source"]) == (3, "log")
    rows = document["state"]["total"]["rows"]
    assert {row["key"]: row["n"] for row in rows} == WORDS
    assert {row["partition"] for row in rows} == set(range(COUNT))
    assert document["state"]["total"]["truncated"] is False


def test_a_key_is_read_from_its_own_partition_alone(run: Run, root: Path) -> None:
    word = "w17"
    (own,) = partitions(pa.table({"word": [word]}), ("word",), COUNT).tolist()
    for other in set(range(COUNT)) - {own}:  # whose files cannot be read
        for file in root.glob(f"u1/1/{OWNER}/counts-{other}/*"):
            file.write_bytes(b"not a state file")
    document = run("counts", "--key", word, "--json")
    assert document["partitions"] == [own]
    assert document["state"]["total"]["rows"] == [{"partition": own, "key": word, "n": 18}]


def test_what_it_prints(run: Run) -> None:
    text = run("counts", "--key", "w3")
    assert text.startswith("wordcount/counts at epoch 3, from the state log\n")
    assert text.split("\n")[-2].split()[1:] == ["w3", "4"]
    assert "total: there may be more" in run("counts", "--limit", "3")


def test_without_an_operator_they_are_listed(run: Run) -> None:
    assert run("--json")["operators"] == [
        {"operator": "counts", "key": ["word"], "partitions": COUNT}
    ]


def test_one_partition_and_a_limit(run: Run) -> None:
    block = run("counts", "--partition", "2", "--limit", "2", "--json")["state"]["total"]
    assert [row["partition"] for row in block["rows"]] == [2, 2]
    assert block["truncated"] is True


def test_what_is_not_there_is_reported(run: Run) -> None:
    text = run("counts", "--key", "unknown", code=1)
    assert "operator counts has no key 'unknown' at epoch 3; `perseid state wordcount" in text
    assert run("counts", "--key", "unknown", "--json", code=1)["state"]["total"]["rows"] == []
    assert "did you mean counts?" in run("count", code=2)
    assert "operator words has no key, so it holds no state" in run("words", code=2)
    assert "has partitions 0 to 3, not 4" in run("counts", "--partition", "4", code=2)
    assert "no key column 'x'" in run("counts", "--key", '{"x": 1}', code=2)


def test_the_logs_are_not_touched(run: Run, root: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in sorted(root.rglob("*"))}
    run("counts", "--limit", "100")
    assert {p: p.stat().st_mtime_ns for p in sorted(root.rglob("*"))} == before


def test_without_a_log_and_a_checkpoint_it_is_refused(run: Run, root: Path) -> None:
    LocalFiles().delete(str(root / "u1"))
    assert "`perseid checkpoint wordcount` takes one" in run("counts", code=3)


def test_every_state_with_a_key_is_asked_for_its_own() -> None:
    """Of a pool, too: joins and windows have no other."""

    class Kept(Operator):
        seen = Pool({"g": pa.string(), "day": pa.int64(), "ms": pa.int64()}, "ms", key=["g", "day"])
        loose = Pool({"ms": pa.int64()}, "ms")
        totals = Table(key=pa.int64(), n=pa.int64())
        newest = Value(pa.int64(), default=0)

    assert state.key_types(Kept) == {
        "seen": {"g": pa.string(), "day": pa.int64()}, "totals": {"key": pa.int64()}
    }  # fmt: skip
