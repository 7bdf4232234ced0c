"""Who may take part in a deployment, and that a format does not change unnoticed."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

import pytest

import perseid.topics
from perseid.errors import RefusedError
from perseid.records import WorkerInfo, audits, entries
from perseid.records.version import PROTOCOL, Build, this_build
from perseid.registry import Registry, codec, paths, versions
from perseid.registry.port import Delete
from perseid.registry.versions import Written
from perseid.state.durability import blob, checkpoint, outputs
from perseid.state.primitives import deltas, dense, keyed, pool
from perseid.testing.registry import FakeZooKeeper

SCHEMAS = Path(perseid.topics.__file__).parent / "schemas"
# What processes of one protocol must agree on. A change of it is seen here: if another version of
# this protocol could misread it, raise PROTOCOL; if not, write why in the commit. Put the new value
# here.
AGREED = (5, "4cb5eb70f52aebe6")


def agreed() -> str:
    """A digest of all formats: control records, entries, state logs and checkpoints."""
    named = {**vars(entries), **vars(audits)}
    kinds = [(n, k) for n, k in named.items() if dataclasses.is_dataclass(k)]
    fields = [f"{n}.{f.name}: {f.type}" for n, k in kinds for f in dataclasses.fields(k)]
    schemas = [path.read_text() for path in sorted(SCHEMAS.glob("*.avsc"))]
    numbers = [codec.FORMAT, blob.VERSION, checkpoint.FORMAT]
    columns = [
        deltas.DELETED, deltas.ROW, deltas.COUNT, deltas.JOINED, keyed.WRITTEN,
        dense.INDEX, dense.VALUE, pool.BEFORE, outputs.OUTPUTS, entries.MAIN,
    ]  # fmt: skip
    text = "\n".join([*sorted(fields), *schemas, *map(str, [*numbers, *columns])])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def test_a_change_of_a_format_is_noticed() -> None:
    assert (PROTOCOL, agreed()) == AGREED


def test_entries_of_a_version_with_more_fields_can_be_read() -> None:
    """What lets versions of one protocol differ by a field with a default."""
    entry = WorkerInfo("w1", "w1-a", "h", 1, 2, 3, "local[2]", 4)

    @dataclasses.dataclass(frozen=True)
    class More(WorkerInfo):
        shown: str = "more"

    More.__name__ = "WorkerInfo"
    reported = codec.encode(More(**dataclasses.asdict(entry)))
    assert b'"shown"' in reported
    assert codec.decode(reported, WorkerInfo, "/workers/w1-a") == entry


@pytest.fixture
def registry() -> Registry:
    return Registry(FakeZooKeeper().session())


def written(registry: Registry) -> Written | None:
    found = registry.read(paths.PROTOCOL, Written)
    return found.value if found is not None else None


def build(protocol: int, *takes_over: int) -> Build:
    return Build(f"{protocol}.0", protocol, takes_over)


def test_the_first_one_writes_and_others_of_its_protocol_join(registry: Registry) -> None:
    versions.admit(registry, "c1", build(2))
    versions.admit(registry, "c2", Build("2.7", 2, ()))
    assert written(registry) == Written(2, "2.0")


@pytest.mark.parametrize("protocol", [1, 3])
def test_another_protocol_is_refused_and_writes_nothing(registry: Registry, protocol: int) -> None:
    versions.admit(registry, "c1", build(2))
    shown = (
        rf"c9 is perseid {protocol}.0, which speaks protocol {protocol}; .* protocol 2 by perseid "
        "2.0: install that version"
    )
    with pytest.raises(RefusedError, match=shown):
        versions.admit(registry, "c9", build(protocol))
    assert written(registry) == Written(2, "2.0")


def test_of_two_that_begin_at_once_one_is_refused(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = registry.read

    def late(path: str, kind: type[Written]) -> object:
        found = read(path, kind)
        monkeypatch.undo()
        versions.admit(registry, "c2", build(3))
        return found

    monkeypatch.setattr(registry, "read", late)
    with pytest.raises(RefusedError, match="written with protocol 3 by"):
        versions.admit(registry, "c1", build(2))


def test_data_of_an_older_protocol_is_taken_over_when_its_processes_are_gone(
    registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    versions.admit(registry, "c1", build(2))
    old = WorkerInfo("w1", "w1-a", "h", 1, 2, 3, "local[2]", 4, protocol=2)
    registry.register_worker(old)
    with pytest.raises(RefusedError, match=r"protocol 2, and processes of that .* run: w1\. Stop"):
        versions.admit(registry, "c2", build(3, 2))
    assert written(registry) == Written(2, "2.0")
    registry.coordination.write(Delete(paths.worker("w1-a")))
    versions.admit(registry, "c2", build(3, 2))
    assert written(registry) == Written(3, "3.0")
    assert "the data of protocol 2 is taken over" in caplog.text
    registry.register_worker(dataclasses.replace(old, protocol=3))
    versions.admit(registry, "c3", build(3, 2))
    with pytest.raises(RefusedError, match=r"written with protocol 3 by perseid 3\.0"):
        versions.admit(registry, "c1", build(2))
    with pytest.raises(RefusedError, match=r"written with protocol 3 by perseid 3\.0"):
        versions.admit(registry, "c1", build(4, 2))


def test_of_two_that_take_over_at_once_both_are_admitted(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions.admit(registry, "c1", build(2))
    workers = registry.workers

    def late() -> object:
        monkeypatch.undo()
        versions.admit(registry, "c2", build(3, 2))
        return workers()

    monkeypatch.setattr(registry, "workers", late)
    versions.admit(registry, "c3", Build("3.1", 3, (2,)))
    assert written(registry) == Written(3, "3.0")


def test_this_build_may_join_what_it_has_written(registry: Registry) -> None:
    for name in ("c1", "w1"):
        versions.admit(registry, name, this_build())
    assert written(registry) == Written(PROTOCOL, this_build().version)
