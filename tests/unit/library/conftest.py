"""Jobs of one library operator."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perseid.testing.operators import Harness

Made = Callable[..., Path]
Harnessed = Callable[..., Harness]

SOURCE = {"topic": "rows", "format": "json", "columns": {
    "g": "string", "h": "string", "w": "string", "i": "int64", "n": "int64", "x": "float64",
    "y": "float64", "at": "int64",
}}  # fmt: skip


@pytest.fixture
def job(tmp_path: Path) -> Made:
    """A job folder whose operator is called `tried`; JSON is YAML."""

    def make(use: str, with_: dict[str, Any], **more: Any) -> Path:
        more = {"input": "rows", **more} if "inputs" not in more else more
        event_time = more.pop("eventTime", None)
        source = SOURCE if event_time is None else {**SOURCE, "eventTime": event_time}
        operator = {"use": f"library:{use}", "with": with_, **more}
        sources = {"rows": source, **({"others": SOURCE} if "inputs" in more else {})}
        document = {
            "name": "tried", "sources": sources,
            "operators": {"tried": operator},
            "sinks": {
                "out": {"input": "tried", "topic": "out", "format": "json", "order": "free"}
            },
        }  # fmt: skip
        (tmp_path / "job.yaml").write_text(json.dumps(document))
        return tmp_path

    return make


@pytest.fixture
def harness(job: Made) -> Harnessed:
    """A harness of such a job."""

    def make(use: str, with_: dict[str, Any], *, partitions: int = 1, **more: Any) -> Harness:
        return Harness(job(use, with_, **more), "tried", parallelism=partitions)

    return make
