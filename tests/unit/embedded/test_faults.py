from pathlib import Path

import pytest

from perseid.embedded import faults
from perseid.errors import RefusedError
from perseid.records import Deployment


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    (tmp_path / "store").mkdir()
    return Deployment(
        kafka="127.0.0.1:1001", zookeeper="127.0.0.1:1002", redis="redis://127.0.0.1:1003/0",
        store=str(tmp_path / "store"), state=str(tmp_path / "state"), logs=str(tmp_path),
    )  # fmt: skip


def test_ports_of_the_parts(deployment: Deployment) -> None:
    ports = [faults.port_of(deployment, part) for part in ("kafka", "zookeeper", "redis")]
    assert ports == [1001, 1002, 1003]
    with pytest.raises(RefusedError, match="there are kafka, zookeeper, redis"):
        faults.port_of(deployment, "w1")


def test_both_directions_are_cut_on_loopback_only() -> None:
    found = faults.rules(1001)
    assert [rule[rule.index("1001") - 1] for rule in found] == ["--dport", "--sport"]
    assert all(rule[:3] == ["INPUT", "-i", "lo"] and rule[-1] == "DROP" for rule in found)


@pytest.mark.parametrize(("user", "tool", "reason"), [
    (1000, "/sbin/iptables", "needs root"), (0, None, "apt-get install iptables"),
])  # fmt: skip
def test_a_partition_that_cannot_be_made_is_refused_with_another_way(
    user: int, tool: str | None, reason: str, deployment: Deployment,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("os.geteuid", lambda: user)
    monkeypatch.setattr("shutil.which", lambda _: tool)
    with (
        pytest.raises(RefusedError, match=f"{reason}.*chaos pause kafka"),
        faults.partition(deployment, "kafka"),
    ):
        pass


class Disk:
    """The numbers of a disk with some free blocks."""

    f_frsize = 4096

    def __init__(self, free_bytes: int) -> None:
        self.f_bfree = self.f_bavail = free_bytes // self.f_frsize


def test_fill_leaves_what_was_asked_for_and_release_undoes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.statvfs", lambda _: Disk(1 << 20))
    assert faults.fill(tmp_path, 1 << 18) == (1 << 20) - (1 << 18)
    assert (tmp_path / faults.BALLAST).stat().st_size == (1 << 20) - (1 << 18)
    assert faults.release(tmp_path) == (1 << 20) - (1 << 18)
    assert list(tmp_path.iterdir()) == []
    assert faults.release(tmp_path) == 0


def test_a_disk_with_less_free_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.statvfs", lambda _: Disk(4096))
    with pytest.raises(RefusedError, match="less than that free"):
        faults.fill(tmp_path, 1 << 20)


def test_folders_by_name_and_path(deployment: Deployment, tmp_path: Path) -> None:
    assert faults.folder_of(deployment, tmp_path, "store") == tmp_path / "store"
    assert faults.folder_of(deployment, tmp_path, str(tmp_path)) == tmp_path
    with pytest.raises(RefusedError, match="name one"):
        faults.folder_of(deployment, tmp_path, "nowhere")
