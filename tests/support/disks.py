"""Disks for tests: small file systems in memory that are filled and freed.

Mounting needs root. With a file system of its own, a full disk is harmless to the rest of the
machine and real to the server that writes there.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

BALLAST = "ballast-of-a-test"
STEPS = (16 << 20, 1 << 20, 4096)  # bytes; the last is a page


class Disk:
    """A file system of `megabytes` at `folder`; a context manager."""

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
        # Lazily: a killed server may keep files open there for a moment.
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True, capture_output=True)

    @contextmanager
    def full(self) -> Iterator[None]:
        """Fills the disk while the block runs, also for writes in progress."""
        ballast = self.folder / BALLAST
        descriptor = os.open(ballast, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            size = 0
            for step in STEPS:
                with suppress(OSError):  # no room for another step
                    while True:
                        os.posix_fallocate(descriptor, size, step)
                        size += step
            yield
        finally:
            os.close(descriptor)
            ballast.unlink()
