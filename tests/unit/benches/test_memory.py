"""What counts as memory, and what is made of many looks at it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benches.memory import PeakMemory, tmpfs_bytes
from perseid.errors import PermanentError


def test_files_on_a_disk_are_no_memory(tmp_path: Path) -> None:
    inner = tmp_path / "ram" / "logs"
    inner.mkdir(parents=True)
    (inner / "delta").write_bytes(b"x" * 10_000)
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/vda / ext4 rw 0 0\ntmpfs {tmp_path}/ram tmpfs rw 0 0\n")
    assert 10_000 <= tmpfs_bytes(inner, mounts) < 100_000
    mounts.write_text(f"tmpfs / tmpfs rw 0 0\n/dev/vda {tmp_path}/ram ext4 rw 0 0\n")
    assert tmpfs_bytes(inner, mounts) == 0


def test_the_peak_and_what_it_settles_at() -> None:
    peak = PeakMemory(lambda: 1)
    peak.seen = [2_000_000, 9_000_000, 3_000_000]
    assert (peak.peak_bytes, peak.settled_bytes, peak.mb) == (9_000_000, 3_000_000, 9.0)


def test_a_short_window_is_looked_at_too() -> None:
    with PeakMemory(lambda: 5_000_000, every_s=3600) as peak:
        pass
    assert peak.mb == 5.0


def test_memory_of_nothing_is_no_answer() -> None:
    with PeakMemory(lambda: 0) as peak:
        pass
    with pytest.raises(PermanentError, match="no process"):
        _ = peak.settled_bytes
