import hashlib
from pathlib import Path

import pytest

from perseid.embedded import jars
from perseid.embedded.cache import cache_root
from perseid.errors import RefusedError, RetryableError

JAVA = Path("/nowhere")


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERSEID_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "kafka.lock"
    path.write_text(f"{digest(b'a')}  a.jar\n{digest(b'b')}  b.jar\n")
    return path


class Ivy:
    """Brings the given files in place of the real resolver."""

    def __init__(self, **files: bytes) -> None:
        self.files, self.calls = files, 0

    def __call__(self, _java: Path, into: Path, _ivy_home: Path) -> None:
        self.calls += 1
        for name, content in self.files.items():
            (into / f"{name}.jar").write_bytes(content)


def test_jars_are_resolved_once(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ivy = Ivy(a=b"a", b=b"b")
    monkeypatch.setattr(jars, "resolve", ivy)
    first = jars.kafka_jars(JAVA, lock=lock)
    assert jars.kafka_jars(JAVA, lock=lock) == first
    assert ivy.calls == 1
    assert sorted(path.name for path in first.iterdir()) == ["a.jar", "b.jar"]
    assert [path.name for path in first.parent.iterdir()] == [first.name]


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"a": b"a", "b": b"evil"}, "b.jar has SHA-256"),
        ({"a": b"a"}, "b.jar is missing"),
        ({"a": b"a", "b": b"b", "c": b"c"}, "c.jar is not in the lock"),
    ],
)
@pytest.mark.security("5.16")
def test_what_is_not_exactly_the_lock_is_refused_and_not_kept(
    files: dict[str, bytes], reason: str, lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jars, "resolve", Ivy(**files))
    with pytest.raises(RefusedError, match=reason):
        jars.kafka_jars(JAVA, lock=lock)
    assert list(cache_root().iterdir()) == []


def test_a_damaged_cache_is_resolved_again(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ivy = Ivy(a=b"a", b=b"b")
    monkeypatch.setattr(jars, "resolve", ivy)
    folder = jars.kafka_jars(JAVA, lock=lock)
    (folder / "a.jar").write_bytes(b"")
    shown: list[str] = []
    assert jars.differences(jars.kafka_jars(JAVA, shown.append, lock), jars.read_lock(lock)) == []
    assert ivy.calls == 2
    assert any("damaged" in text for text in shown)


def test_offline_is_an_error_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'java.net.UnknownHostException: somewhere'\nexit 1\n")
    java.chmod(0o755)
    monkeypatch.setattr(jars, "spark_home", lambda: tmp_path)
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "ivy-1.jar").touch()
    with pytest.raises(RetryableError, match=r"UnknownHostException.*go online"):
        jars.resolve(tmp_path, tmp_path, tmp_path)


@pytest.mark.security("5.16")
def test_the_lock_names_the_broker() -> None:
    names = jars.read_lock()
    assert f"kafka_2.13-{jars.KAFKA[2]}.jar" in names
    assert all(len(value) == 64 for value in names.values())
