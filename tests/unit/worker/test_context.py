"""What a task finds on its host."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from perseid.errors import PerseidError
from perseid.jobs.model.layout import Layout, Task
from perseid.jobs.model.trees import archive, archive_path, sha256
from perseid.records import Deployment
from perseid.state.durability.store import open_store
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
