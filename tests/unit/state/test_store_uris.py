"""Which store a URI opens, and with which settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perseid.errors import UsageError
from perseid.state.durability.store import ArrowStore, LocalStore, open_store


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_a_directory(tmp_path: Path, prefix: str) -> None:
    store = open_store(f"{prefix}{tmp_path}/made")
    assert isinstance(store, LocalStore)
    store.write("a/b", [b"x"])
    assert (tmp_path / "made/a/b").read_bytes() == b"x"


def test_what_speaks_s3_by_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    uri = "s3://bucket/jobs?endpoint_override=127.0.0.1:9000&scheme=http&region=eu-west-1"
    store = open_store(uri)
    assert isinstance(store, ArrowStore)
    assert store._path("a/b") == "bucket/jobs/a/b"
    assert not store._moves  # an object is whole under its name or not there
    settings: Any = store._filesystem.__reduce__()[1][0]
    expected = {
        "endpoint_override": "127.0.0.1:9000", "scheme": "http", "region": "eu-west-1",
        "allow_delayed_open": True, "allow_bucket_creation": False,
    }  # fmt: skip
    assert {name: settings[name] for name in expected} == expected


def test_a_setting_of_the_user_stands() -> None:
    store = open_store("s3://bucket/jobs?region=eu-west-1&allow_delayed_open=false")
    assert isinstance(store, ArrowStore)
    settings: Any = store._filesystem.__reduce__()[1][0]
    assert not settings["allow_delayed_open"]


def test_an_incomplete_uri_is_refused() -> None:
    with pytest.raises(UsageError, match="gopher://x"):
        open_store("gopher://x")
