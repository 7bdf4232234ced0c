"""Spark's event log, which workers write into the folder that PERSEID_EVENT_LOG names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

EVENT_LOG = "PERSEID_EVENT_LOG"


def events(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yields every event with its log: each driver has its own log and stage ids."""
    for path in folder.rglob("*"):
        if path.is_file():
            for line in path.read_text().splitlines():
                try:
                    yield path, json.loads(line)
                except ValueError:
                    continue  # the last line of a log that is still being written
