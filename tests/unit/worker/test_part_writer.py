"""The process that writes parts: what it answers, what its death costs, when it ends."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pyarrow as pa
import pytest

from perseid.engine import acknowledged
from perseid.errors import FencedError, RetryableError
from perseid.records import crashpoints
from perseid.state import Value
from perseid.state.durability import checkpoint
from perseid.state.durability.blob import Identity
from perseid.state.durability.checkpoint import Manifest, Part
from perseid.state.durability.files import LocalFiles
from perseid.state.durability.log import StateLog
from perseid.state.durability.store import LocalStore
from perseid.state.primitives.arrow import ipc_bytes, ipc_table
from perseid.testing.wait import until
from perseid.topics.records import PartDone, PartFailed
from perseid.worker.checkpoint import checkpoints, part_orders, part_writer, parts
from perseid.worker.checkpoint.part_orders import FOLDER, note
from perseid.worker.checkpoint.parts import PartOrder
from perseid.worker.dataflow.context import FragmentContext

IDENTITY = Identity("uuid", 1, "counts", 0)


@pytest.fixture
def order(tmp_path: Path) -> PartOrder:
    """Of a log with one epoch, in which a value was set."""
    log = StateLog(LocalFiles(), str(tmp_path / "log"), IDENTITY)
    log.create()
    log.write_snapshot(0, 1, 10, {})
    log.append(1, 1, 11, {"state.n": ipc_bytes(pa.table({"value": [7]})), "out": b""})
    schemas = {"n": Value(pa.int64()).schema()}
    return PartOrder("job", IDENTITY, log.directory, 1, 1, 11, None, schemas, ())


@pytest.fixture(autouse=True)
def _one_writer() -> Iterator[None]:
    checkpoints._born.cache_clear()
    yield
    checkpoints._writer().close()
    checkpoints._born.cache_clear()


def test_a_part_is_written_by_a_process_that_ends_with_its_input(
    tmp_path: Path, order: PartOrder
) -> None:
    done = checkpoints._written(str(tmp_path / "store"), order)
    part = Part(done.operator, done.partition, done.path, done.bytes, done.crc, done.chain)
    manifest = Manifest("job", "uuid", 1, 1, 1, "r", 11, 0, (part,))
    found = checkpoint.read_state(LocalStore(tmp_path / "store"), manifest, "counts", 0)
    assert ipc_table(found["state.n"])["value"].to_pylist() == [7]
    writer = checkpoints._writer()
    writer.close()
    assert writer.exit_code == 0


def test_what_goes_wrong_is_logged_and_the_process_continues(
    tmp_path: Path, order: PartOrder
) -> None:
    store = str(tmp_path / "store")
    with pytest.raises(RetryableError, match="a checkpoint of epoch 2"):
        checkpoints._written(store, replace(order, epoch=2))
    with pytest.raises(FencedError, match="gone"):
        checkpoints._written(store, replace(order, directory="/nowhere"))
    writer = checkpoints._writer()
    assert checkpoints._written(store, order).epoch == 1
    assert checkpoints._writer() is writer


def test_a_replicas_log_is_folded_by_the_process_once_its_deltas_have_outgrown_it(
    order: PartOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = StateLog(LocalFiles(), order.directory, IDENTITY)
    assert checkpoints._answer(None, order) is None
    assert log.snapshots() == [0]  # one small delta is no reason
    monkeypatch.setattr(parts, "LOG_FILES", 0)
    assert part_writer.answered(part_writer._answer(part_writer.request(None, order))) is None
    assert log.snapshots() == [0, 1]
    assert ipc_table(log.snapshot(1).sections["state.n"])["value"].to_pylist() == [7]
    with pytest.raises(FencedError, match="gone"):
        checkpoints._answer(None, replace(order, directory="/nowhere"))


def test_a_writer_that_dies_is_followed_by_another(
    tmp_path: Path, order: PartOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = tmp_path / "points"
    crashpoints.arm(points, "checkpoint.during-upload")
    monkeypatch.setenv("PERSEID_CRASH_POINTS", str(points))
    assert checkpoints._written(str(tmp_path / "store"), order).epoch == 1
    assert not crashpoints.armed(points, "checkpoint.during-upload")


def test_an_order_that_a_later_one_has_overtaken_is_not_worked_at(
    order: PartOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a store that hung the newest one waited for all of them."""
    worked: list[int] = []
    newest = part_orders.Newest()
    newest.ordered(replace(order, epoch=5))
    monkeypatch.setattr(checkpoints, "_newest", newest)
    monkeypatch.setattr(checkpoints, "_upload", lambda _, order, __: worked.append(order.epoch))
    monkeypatch.setattr(checkpoints, "_progress", lambda *_: DeafProgress(0))
    context = cast(FragmentContext, SimpleNamespace(brokers="", job="job"))
    for epoch in (4, 5):
        late = replace(order, epoch=epoch)
        note(LocalFiles(), late, checkpoints._me())
        checkpoints._work(context, late, None)
    assert worked == [5]
    assert os.listdir(Path(order.directory).parent / FOLDER) == []


def test_damage_that_only_a_part_meets_ends_the_life_of_the_fragment(
    tmp_path: Path, order: PartOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes have the state, so no epoch reads the old files: no checkpoint came any more."""
    monkeypatch.setattr(checkpoints, "_newest", part_orders.Newest())
    deployment = SimpleNamespace(store=str(tmp_path / "store"))
    context = cast(
        FragmentContext,
        SimpleNamespace(
            deployment=deployment, brokers="", job="job", owned=str(Path(order.directory).parent)
        ),
    )
    other = cast(FragmentContext, SimpleNamespace(owned=f"{tmp_path}/another-owner"))
    done = checkpoints._upload(context, order, None)
    checkpoints.refuse_damaged(context)
    for path in Path(order.directory).iterdir():
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    failed = checkpoints._upload(context, replace(order, base=None), None)
    assert isinstance(done, PartDone)
    assert isinstance(failed, PartFailed)
    assert failed.reason.startswith("DamagedFile: ")
    with pytest.raises(RetryableError, match="it has to be restored"):
        checkpoints.refuse_damaged(context)
    checkpoints.refuse_damaged(other)


class DeafProgress:
    """A broker that is away for the first `refusals` appends."""

    def __init__(self, refusals: int) -> None:
        self.refusals, self.heard = refusals, list[object]()

    def append(self, record: object) -> None:
        if self.refusals:
            self.refusals -= 1
            raise RetryableError("no answer")
        self.heard.append(record)


class Reports:
    """What two jobs' progress topics got; the one of "removed" does not exist any more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.logs = {"removed": DeafProgress(10**9), "job": DeafProgress(0)}
        monkeypatch.setattr(acknowledged, "AGAIN_S", 0.01)
        monkeypatch.setattr(checkpoints, "_newest", part_orders.Newest())
        monkeypatch.setattr(checkpoints, "_progress", lambda _, job: self.logs[job])
        monkeypatch.setattr(checkpoints, "_opened", lambda _, job: self.logs[job])

    def work(self, order: PartOrder) -> None:
        context = SimpleNamespace(brokers="", job=order.job)
        note(LocalFiles(), order, checkpoints._me())
        checkpoints._newest.ordered(order)
        checkpoints._work(cast(FragmentContext, context), order, None)


def repeating() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == checkpoints.REPORT_AGAIN]


def test_the_result_of_a_part_is_reported_until_it_is_acknowledged(
    order: PartOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint, and a switch with it, waited 300 s for a report that was lost."""
    failed = PartFailed("uuid", 1, 1, "counts", 0, "disk full")
    monkeypatch.setattr(checkpoints, "_upload", lambda *_: failed)
    reports = Reports(monkeypatch)
    reports.logs["job"].refusals = 3
    reports.work(order)
    until(lambda: reports.logs["job"].heard == [failed], 30.0, "the report")
    until(lambda: os.listdir(Path(order.directory).parent / FOLDER) == [], 30.0, "its end")


@pytest.mark.parametrize("ended_by", ["removal", "later order", "its limit"])
def test_parts_of_other_jobs_do_not_wait_for_a_report_that_is_not_taken(
    order: PartOrder, monkeypatch: pytest.MonkeyPatch, ended_by: str
) -> None:
    """A removed job's report was repeated for half an hour; no job's checkpoint was completed."""
    monkeypatch.setattr(checkpoints, "_upload", lambda _, order, __: order.epoch)
    reports, removed = Reports(monkeypatch), replace(order, job="removed")
    if ended_by == "its limit":
        monkeypatch.setattr(checkpoints, "REPORTS_MAX", 3)
    reports.work(removed)
    reports.work(replace(order, epoch=7, identity=Identity("other", 1, "counts", 0)))
    assert reports.logs["job"].heard == [7]
    if ended_by != "its limit":
        assert len(repeating()) == 1
    if ended_by == "removal":
        shutil.rmtree(Path(order.directory).parent)
    elif ended_by == "later order":
        checkpoints._newest.ordered(replace(removed, epoch=2))
    until(lambda: repeating() == [], 30.0, "the end of the repeats")
    assert reports.logs["removed"].heard == []


def test_a_writer_yields_to_everything_else(tmp_path: Path, order: PartOrder) -> None:
    checkpoints._written(str(tmp_path / "store"), order)
    pid = checkpoints._writer()._process.pid
    assert os.getpriority(os.PRIO_PROCESS, pid) == part_writer.NICE
    assert os.getsid(pid) == pid
    grouping = Path(f"/proc/{pid}/autogroup")
    if grouping.exists() and (reported := grouping.read_text()):  # empty where a cgroup groups it
        assert reported.split()[-2:] == ["nice", "19"]


def test_a_paced_process_takes_its_share_of_a_core() -> None:
    begun_s, used_s = time.monotonic(), time.process_time()
    with part_writer.paced(share=0.2, paced_s=60):
        while time.process_time() - used_s < 0.2:
            pass
    assert time.monotonic() - begun_s > 0.7


def test_after_a_while_it_is_not_paced_any_more() -> None:
    with part_writer.paced(share=0.2, paced_s=0.1):
        assert signal.getitimer(signal.ITIMER_PROF)[1] > 0
        used_s = time.process_time()
        while time.process_time() - used_s < 0.2:
            pass
        assert signal.getitimer(signal.ITIMER_PROF) == (0, 0)
    assert signal.getsignal(signal.SIGPROF) == signal.SIG_IGN


@pytest.mark.parametrize("final", [False, True])
def test_only_the_part_that_a_job_waits_for_is_not_paced(
    order: PartOrder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, final: bool
) -> None:
    timers = []

    def made(*_: object) -> None:
        timers.append(signal.getitimer(signal.ITIMER_PROF)[1] > 0)

    monkeypatch.setattr(part_writer, "make", made)
    part_writer._made(replace(order, final=final), str(tmp_path))
    assert timers == [not final]


def test_nothing_in_front_of_a_final_part_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job's end waited up to 20 s for the part of a checkpoint that was under way."""
    awaited = threading.Event()
    monkeypatch.setattr(part_writer, "_awaited", awaited)
    awaited.set()
    begun_s, used_s = time.monotonic(), time.process_time()
    with part_writer.paced(share=0.01, paced_s=60):
        while time.process_time() - used_s < 0.2:
            pass
        assert signal.getitimer(signal.ITIMER_PROF) == (0, 0)
    assert time.monotonic() - begun_s < 15  # paced: 20 s


def test_a_pause_ends_when_a_final_part_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    awaited = threading.Event()
    monkeypatch.setattr(part_writer, "_awaited", awaited)
    threading.Timer(0.2, awaited.set).start()
    begun_s, used_s = time.monotonic(), time.process_time()
    with part_writer.paced(share=0.0001, paced_s=60):  # its first pause takes 50 s
        while time.process_time() - used_s < 0.1:
            pass
    assert 0.2 <= time.monotonic() - begun_s < 30


@pytest.mark.parametrize("final", [False, True])
def test_a_final_part_is_awaited_until_its_turn_comes(
    order: PartOrder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, final: bool
) -> None:
    awaited = threading.Event()
    awaited.set()
    monkeypatch.setattr(part_writer, "_awaited", awaited)
    monkeypatch.setattr(part_writer, "make", lambda *_: None)
    part_writer._made(replace(order, final=final), str(tmp_path))
    assert awaited.is_set() != final


@pytest.mark.parametrize("final", [False, True])
def test_a_writer_hears_of_a_final_part_before_its_order(
    order: PartOrder, monkeypatch: pytest.MonkeyPatch, final: bool
) -> None:
    """And answers all orders after it."""
    sent: list[object] = []

    def submit(_context: object, part: PartOrder, _copy: object) -> None:
        sent.append(part)

    hurry = checkpoints.PartWriter.hurry

    def hurried(writer: checkpoints.PartWriter) -> None:
        sent.append("hurry")
        hurry(writer)

    monkeypatch.setattr(checkpoints.PartWriter, "hurry", hurried)
    monkeypatch.setattr(checkpoints, "_submit", submit)
    part = replace(order, final=final)
    context = cast(FragmentContext, SimpleNamespace(job="job", generation=1))
    checkpoints.upload_soon(context, part, None)
    assert sent == (["hurry", part] if final else [part])
    store = str(Path(order.directory).parent / "store")
    assert checkpoints._written(store, part).epoch == 1
    assert checkpoints._writer().exit_code is None
