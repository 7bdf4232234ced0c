"""A benchmark's data goes with it, and nobody else's does."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perseid.cli.benches import bench_cluster


class StubCluster:
    """Writes a file when it comes up, as a broker does."""

    def __init__(self, folder: Path, say: Any) -> None:
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
    monkeypatch.setattr(bench_cluster, "TopicAdmin", lambda _: None)


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
