"""A benchmark's data goes with it, and no other data does."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benches import bench_cluster


class StubCluster:
    """Writes a file when it comes up, as a broker does."""

    def __init__(self, folder: Path, note: Any) -> None:
        self.data = folder

    def up(self, **_: int) -> SimpleNamespace:
        self.data.mkdir(exist_ok=True)
        (self.data / "segment").write_text("records")
        return SimpleNamespace(kafka="nowhere:1")

    def down(self, *, purge: bool = False) -> None:
        if purge:
            (self.data / "segment").unlink()


@pytest.fixture(autouse=True)
def _stubs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_cluster, "Cluster", StubCluster)
    monkeypatch.setattr(bench_cluster, "TopicAdmin", lambda _, *, timeout_s: None)


@pytest.mark.parametrize(("before", "left"), [([], []), (["mine"], ["mine", "segment"])])
def test_a_folder_that_was_empty_is_emptied_again(
    tmp_path: Path, before: list[str], left: list[str]
) -> None:
    for name in before:
        (tmp_path / name).touch()
    with bench_cluster.place(tmp_path):
        assert (tmp_path / "segment").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == left


def test_what_failed_keeps_its_data_and_logs(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="as the test wants"), bench_cluster.place(tmp_path):
        raise ValueError("as the test wants")
    assert (tmp_path / "segment").exists()


def test_state_logs_lie_where_they_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERSEID_STATE", "before")
    with bench_cluster.state_logs_in(tmp_path / "disk"):
        own = Path(os.environ["PERSEID_STATE"])
        (own / "log").touch()
        assert own.parent == tmp_path / "disk"
    assert os.environ["PERSEID_STATE"] == "before"
    assert list((tmp_path / "disk").iterdir()) == []


def test_state_logs_of_what_failed_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PERSEID_STATE", raising=False)
    with pytest.raises(ValueError, match="as wanted"), bench_cluster.state_logs_in(tmp_path):
        raise ValueError("as wanted")
    assert "PERSEID_STATE" not in os.environ
    assert len(list(tmp_path.iterdir())) == 1


def test_without_a_folder_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSEID_STATE", "mine")
    with bench_cluster.state_logs_in(None):
        assert os.environ["PERSEID_STATE"] == "mine"
