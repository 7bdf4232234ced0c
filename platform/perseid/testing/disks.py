"""Disks of a test's own: small file systems in memory that are filled and freed.

Mounting needs root. A file system of its own is what makes a full disk harmless to everything else
on the machine, and real to the server that writes there.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perseid.embedded import faults


class Disk:
    """A file system of `megabytes` at `folder`. Used by `with`."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        self.folder = folder
        self._megabytes = megabytes

    def __enter__(self) -> Disk:
        self.folder.mkdir(parents=True, exist_ok=True)
        size = f"size={self._megabytes}m"
        command = ["mount", "-t", "tmpfs", "-o", size, "perseid-test", str(self.folder)]
        subprocess.run(command, check=True, capture_output=True, text=True)
        return self

    def __exit__(self, *_: object) -> None:
        # Lazily: a server that is being killed may have files open there for a moment.
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True, capture_output=True)

    @contextmanager
    def full(self, free_bytes: int = 0) -> Iterator[None]:
        """While the block runs nothing but `free_bytes` can be written."""
        faults.fill(self.folder, free_bytes)
        try:
            yield
        finally:
            faults.release(self.folder)
