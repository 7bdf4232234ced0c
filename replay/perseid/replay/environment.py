"""What of this process decides results besides code and input: versions, and the processor."""

from __future__ import annotations

import hashlib
import platform
from importlib import metadata
from typing import TYPE_CHECKING

from perseid.jobs.environments.lockfile import LOCK_FILE

if TYPE_CHECKING:
    from pathlib import Path

PACKAGES = ("numpy", "pandas", "pyarrow", "pyspark")


def of(folder: Path) -> dict[str, str]:
    """The environment in which the job in `folder` runs here."""
    found = {
        "python": platform.python_version(), "machine": platform.machine(),
        **{name: metadata.version(name) for name in PACKAGES},
    }  # fmt: skip
    lock = folder / LOCK_FILE
    if lock.is_file():
        found["lock"] = hashlib.sha256(lock.read_bytes()).hexdigest()
    return found
