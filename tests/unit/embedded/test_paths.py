from pathlib import Path

import pytest

from perseid.embedded import paths
from perseid.errors import RefusedError


@pytest.fixture(autouse=True)
def no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PERSEID_HOME", raising=False)


def test_named_folder_wins_over_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERSEID_HOME", str(tmp_path / "home"))
    assert paths.locate(tmp_path / "named") == tmp_path / "named"
    assert paths.locate() == tmp_path / "home"


def test_a_work_tree_keeps_its_data_in_it() -> None:
    assert paths.locate() == Path(__file__).parents[3] / ".perseid"


def test_an_installed_package_uses_the_users_state_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "repository", lambda: None)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert paths.locate() == tmp_path / "perseid"


def test_no_cluster_is_refused_with_what_to_type(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="type `perseid up`"):
        paths.deployment(tmp_path)


def test_state_lies_on_a_large_tmpfs_and_always_at_the_same_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"tmpfs {tmp_path} tmpfs rw 0 0\n")
    monkeypatch.setattr(paths, "SHM_BYTES_MIN", 1)
    first = paths.state_root(tmp_path / "a", tmp_path, mounts)
    assert first.parent == tmp_path
    assert paths.state_root(tmp_path / "a", tmp_path, mounts) == first
    assert paths.state_root(tmp_path / "b", tmp_path, mounts) != first


@pytest.mark.parametrize(("kind", "bytes_min"), [("ext4", 1), ("tmpfs", 1 << 60)])
def test_state_lies_on_the_disk_without_a_tmpfs_or_with_a_small_one(
    kind: str, bytes_min: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"x {tmp_path} {kind} rw 0 0\n")
    monkeypatch.setattr(paths, "SHM_BYTES_MIN", bytes_min)
    assert paths.state_root(tmp_path / "a", tmp_path, mounts) == tmp_path / "a" / "state"
