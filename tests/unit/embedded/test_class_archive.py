"""The class archive: made once, kept by Java build, and never a reason not to start."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from perseid.embedded import class_archive as archives
from perseid.embedded.cache import cache_root


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERSEID_CACHE", str(tmp_path / "cache"))
    home = tmp_path / "java"
    home.mkdir()
    (home / "release").write_text('JAVA_VERSION="17.0.1"')
    return home


@pytest.fixture
def home(java: Path) -> Path:
    found = cache_root() / "spark-1"
    found.mkdir(parents=True)
    (found / "jars").symlink_to(java)  # any place that exists
    return found


class Training:
    """In place of the JVM: writes the archive, or fails with `words`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, words: str = "") -> None:
        self.words, self.runs = words, 0
        monkeypatch.setattr(subprocess, "run", self)

    def __call__(self, command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        self.runs += 1
        assert options["env"]["SPARK_HOME"] == "/spark"
        target = options["env"]["PERSEID_JAVA_OPTIONS"].removeprefix(archives.MAKE)
        if not self.words:
            Path(target).write_text("classes")
        return subprocess.CompletedProcess(command, 1 if self.words else 0, "", self.words)


def test_it_is_made_once_and_again_for_another_java(
    java: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training, text = Training(monkeypatch), list[str]()
    first = archives.class_archive(java, home, {"SPARK_HOME": "/spark"}, text.append)
    assert first is not None and first.read_text() == "classes"
    assert archives.class_archive(java, home, {"SPARK_HOME": "/spark"}, text.append) == first
    assert (training.runs, len(text)) == (1, 1)
    (java / "release").write_text('JAVA_VERSION="17.0.2"')
    other = archives.class_archive(java, home, {"SPARK_HOME": "/spark"}, text.append)
    assert other not in (None, first) and training.runs == 2
    assert [p.name for p in home.iterdir() if p.name.startswith("training")] == []


def test_a_training_that_fails_is_reported_and_tried_again_next_time(
    java: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training, text = Training(monkeypatch, "noise\nno base archive\n"), list[str]()
    for _ in range(2):
        assert archives.class_archive(java, home, {"SPARK_HOME": "/spark"}, text.append) is None
    assert training.runs == 2
    assert "workers start slower: no base archive" in text[-1]


def test_homes_of_installations_that_are_gone_are_removed(java: Path, home: Path) -> None:
    gone = cache_root() / "spark-2"
    gone.mkdir()
    (gone / "jars").symlink_to(java / "not-there")
    archives.remove_orphans()
    assert home.is_dir() and not gone.exists()
