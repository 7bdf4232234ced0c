"""The settings of a deployment: its file and the environment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perseid.errors import UsageError
from perseid.records import Deployment

FILE = {
    "kafka": "k:1", "zookeeper": "z:1", "redis": "redis://r:1", "store": "s", "state": "t",
    "logs": "l",
}  # fmt: skip


def loaded(folder: Path, **more: object) -> Deployment:
    path = folder / "deployment.json"
    path.write_text(json.dumps(FILE | more))
    return Deployment.load(path)


def test_a_micro_batch_reads_ahead_for_five_seconds_or_as_the_environment_sets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert loaded(tmp_path).read_ahead_s == 5.0
    monkeypatch.setenv("PERSEID_READ_AHEAD_S", "0")
    assert loaded(tmp_path, read_ahead_s=7).read_ahead_s == 0.0


@pytest.mark.parametrize("given", ["-1", "61", "nan", "soon"])
def test_another_time_is_refused_with_what_is_expected(given: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"PERSEID_READ_AHEAD_S '{given}': expected seconds, 0 to"):
        loaded(tmp_path, read_ahead_s=given)


def test_settings_of_an_earlier_version_do_not_hinder(tmp_path: Path) -> None:
    assert loaded(tmp_path, query="loop") == loaded(tmp_path)
