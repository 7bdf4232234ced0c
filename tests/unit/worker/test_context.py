"""What a task finds on its host."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path

import pytest

from perseid.engine.order import EpochOrder, decode_order
from perseid.errors import PerseidError
from perseid.jobs.model.layout import Layout, Task
from perseid.jobs.model.trees import archive, archive_path, sha256
from perseid.records import Deployment
from perseid.state.durability.store import open_store
from perseid.topics import codec
from perseid.topics.records import InputCheck, SourceRange, Token
from perseid.worker.dataflow.context import FragmentContext

FILES = {"job.yaml": b"name: far\n", "far.py": b"ANSWER = 42\n"}


def context(store: Path, sha: str, folder: Path) -> FragmentContext:
    deployment = Deployment(
        kafka="k:1", zookeeper="z:1", redis="redis://r", store=str(store), state="/s", logs="/l"
    )
    return FragmentContext(
        deployment=deployment, job="far", job_uuid="u", generation=1, incarnation="w1-a",
        revision="r", archive=sha, folder=str(folder),
        layout=Layout(1, (Task(0, "counts", 0, 1, True, 0),)), base_epoch=0, lanes=0,
        one_task_each=False, rescaled=False,
    )  # fmt: skip


def test_an_executor_on_another_host_than_the_driver_takes_the_code_from_the_store(
    tmp_path: Path,
) -> None:
    sha = sha256(archive(FILES))
    open_store(str(tmp_path / "store")).write(archive_path(sha), [archive(FILES)])
    here = tmp_path / "this-host" / "archives" / sha
    found = context(tmp_path / "store", sha, here).job_folder
    assert found == here
    assert {p.name: p.read_bytes() for p in found.iterdir() if p.name in FILES} == FILES


def test_a_store_without_the_archive_is_no_empty_folder(tmp_path: Path) -> None:
    sha = sha256(archive(FILES))
    absent = replace(context(tmp_path / "store", sha, tmp_path / sha), archive=sha)
    with pytest.raises(PerseidError):
        _ = absent.job_folder
    assert not (tmp_path / sha).exists()


@pytest.mark.parametrize("base", [None, ("job/17/manifest", 17)])
def test_an_order_reaches_tasks_with_the_bytes_that_the_token_log_has(
    base: tuple[str, int] | None,
) -> None:
    split = (SourceRange("lines", "lines", "id", 0, 100, 200),)
    logged = Token(1, "u", 7, 3, "r", 1, (split,), 1_000, checkpoint=True, generation=2,
                   checks=(InputCheck(6, 0, "lines", 50, 1),))  # fmt: skip
    record = codec.encode(logged)
    known = (InputCheck(7, 0, "lines", 100, 2),)
    token = replace(logged, checkpoint=False, checks=known)
    order = EpochOrder(token, 4, 3, base)
    assert decode_order(order.encode(record)) == order
    assert base64.b64encode(record).decode() in order.encode(record)
