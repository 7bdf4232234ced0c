"""Checkpoints: what comes back is what was written, or DamagedFile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perseid.errors import DamagedFile
from perseid.records import PartFile, crashpoints
from perseid.state.durability import checkpoint
from perseid.state.durability.blob import Header, Identity
from perseid.state.durability.checkpoint import LINKS_MAX, Manifest, Part
from perseid.state.durability.store import LocalStore
from perseid.testing.store import MemoryStore

IDENTITY = Identity("uuid", 1, "counts", 0)
HEADER = Header("snapshot", IDENTITY, epoch=7, generation=3, token_offset=70)
FOLDER = checkpoint.checkpoint_folder("words", "uuid", 7, 3, 70)
PATH = checkpoint.part_path(FOLDER, "counts", 0, checkpoint.PART)


def manifest(*parts: Part) -> Manifest:
    return Manifest("words", "uuid", 7, 3, 1, "abc", 70, 1_700_000_000_000, parts)


def file(crc: int, store: MemoryStore, epoch: int = 7) -> PartFile:
    return PartFile(PATH, epoch, len(store.content.get(PATH, b"")), crc)


def test_parts_of_other_content_have_other_crcs() -> None:
    store = MemoryStore()
    _, one = checkpoint.write_part(store, PATH, HEADER, {"state.total": b"0123"})
    _, other = checkpoint.write_part(store, PATH, HEADER, {"state.total": b"4567"})
    assert one != other
    with pytest.raises(DamagedFile, match="manifest"):
        checkpoint.read_part(store, file(one, store), IDENTITY)


def test_a_part_comes_back() -> None:
    store = MemoryStore()
    size, crc = checkpoint.write_part(store, PATH, HEADER, {"state.total": b"x" * 3_000_000})
    assert size == len(store.content[PATH])
    sections = checkpoint.read_part(store, file(crc, store), IDENTITY)
    assert bytes(sections["state.total"]) == b"x" * 3_000_000


@pytest.mark.security("5.9")
def test_a_part_that_is_not_as_it_was_is_refused() -> None:
    store = MemoryStore()
    _, crc = checkpoint.write_part(store, PATH, HEADER, {"state.total": b"0123"})
    whole = store.content[PATH]
    for size in range(len(whole)):
        store.content[PATH] = whole[:size]
        with pytest.raises(DamagedFile, match="manifest gives"):
            checkpoint.read_part(store, file(crc, store), IDENTITY)
    del store.content[PATH]
    with pytest.raises(DamagedFile, match="is missing"):
        checkpoint.read_part(store, file(crc, store), IDENTITY)


def test_a_valid_part_of_another_partition_or_epoch_is_refused() -> None:
    store = MemoryStore()
    _, crc = checkpoint.write_part(store, PATH, HEADER, {})
    with pytest.raises(DamagedFile, match="expected Identity"):
        checkpoint.read_part(store, file(crc, store), Identity("uuid", 1, "counts", 1))
    with pytest.raises(DamagedFile, match="is of epoch 7, expected 8"):
        checkpoint.read_part(store, file(crc, store, epoch=8), IDENTITY)
    with pytest.raises(DamagedFile, match="is a part, expected a net"):
        checkpoint.read_part(store, file(crc, store), IDENTITY, checkpoint.NET)


def test_a_manifest_comes_back_and_names_its_parts() -> None:
    store = MemoryStore()
    part = Part("counts", 0, PATH, 10, 20)
    path, crc = checkpoint.write_manifest(store, manifest(part))
    assert path == f"{FOLDER}/manifest-{crc:08x}.json"
    found = checkpoint.read_manifest(store, path, crc)
    assert found == manifest(part)
    assert found.part("counts", 0) == part
    with pytest.raises(DamagedFile, match="no part of counts-1"):
        found.part("counts", 1)
    with pytest.raises(DamagedFile, match="pointer gives"):
        checkpoint.read_manifest(store, path, crc ^ 1)


def test_a_manifest_replaces_none_that_names_other_parts() -> None:
    """A leader was paused in front of it; its successor's is of another attempt at a part."""
    store = MemoryStore()
    path, crc = checkpoint.write_manifest(store, manifest(Part("counts", 0, PATH, 10, 20)))
    net = Part("counts", 0, PATH.replace(".part", ".net"), 3, 4)
    late, _ = checkpoint.write_manifest(store, manifest(net))
    assert late != path
    assert checkpoint.read_manifest(store, path, crc).parts[0].bytes == 10
    assert checkpoint.write_manifest(store, manifest(net))[0] == late


def test_the_state_of_a_partition_is_read_by_manifest() -> None:
    store = MemoryStore()
    size, crc = checkpoint.write_part(store, PATH, HEADER, {"state.total": b"0123"})
    written = manifest(Part("counts", 0, PATH, size, crc))
    sections = checkpoint.read_state(store, written, "counts", 0)
    assert {name: bytes(data) for name, data in sections.items()} == {"state.total": b"0123"}
    with pytest.raises(DamagedFile, match="no part of counts-1"):
        checkpoint.read_state(store, written, "counts", 1)


@pytest.mark.security("5.9")
def test_every_damage_of_a_manifest_is_found() -> None:
    data = checkpoint.encode_manifest(manifest(Part("counts", 0, PATH, 10, 20)))
    assert checkpoint.decode_manifest(data, "m") == manifest(Part("counts", 0, PATH, 10, 20))
    for size in range(len(data)):
        with pytest.raises(DamagedFile):
            checkpoint.decode_manifest(data[:size], "m")
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamagedFile):
            checkpoint.decode_manifest(damaged, "m")


def test_checkpoints_are_listed_and_deleted() -> None:
    store = MemoryStore()
    top = "jobs/words/uuid"
    folders = [f"{top}/{name}" for name in ("c-10-g1-t5", "c-9-g1-t4", "c-9-g2-t4")]
    assert checkpoint.checkpoint_folder("words", "uuid", 9, 2, 4) == folders[2]
    for folder in folders:
        store.write(f"{folder}/counts-0.part", [b""])
    store.write("jobs/words/uuid/other", [b""])
    assert checkpoint.checkpoints(store, "words", "uuid") == [
        (9, folders[1]), (9, folders[2]), (10, folders[0])
    ]  # fmt: skip
    checkpoint.collect(store, "words", "uuid", [replace(manifest(), epoch=10)])
    assert checkpoint.checkpoints(store, "words", "uuid") == [(10, folders[0])]
    assert store.list("jobs/words/uuid")[-1] == "jobs/words/uuid/other"
    assert checkpoint.checkpoints(store, "words", "other") == []


def test_of_an_old_checkpoint_stays_what_a_newer_one_refers_to() -> None:
    """Its manifest is none of that; an operator may be called so."""
    store = MemoryStore()
    old = "jobs/words/uuid/c-5-g1-t3"
    kept = PartFile(f"{old}/manifest-0.part", 5, 10, 20)
    for path in (kept.path, f"{old}/manifest-1.part", f"{old}/manifest-0123abcd.json"):
        store.write(path, [b""])
    newer = manifest(Part("manifest", 0, f"{FOLDER}/manifest-0.net", 1, 2, (kept,)))
    checkpoint.collect(store, "words", "uuid", [newer])
    assert store.list() == [kept.path]


def test_all_files_of_spared_epochs_stay() -> None:
    store = MemoryStore()
    for epoch in (4, 5, 6):
        folder = checkpoint.checkpoint_folder("words", "uuid", epoch, 1, 3)
        for name in ("counts-0.part", "manifest-0123abcd.json"):
            store.write(f"{folder}/{name}", [b""])
    newest = replace(manifest(), epoch=10)
    checkpoint.collect(store, "words", "uuid", [newest], spared=(5,))
    assert [epoch for epoch, _ in checkpoint.checkpoints(store, "words", "uuid")] == [5]
    assert len(store.list("jobs/words/uuid")) == 2
    checkpoint.collect(store, "words", "uuid", [newest])
    assert store.list("jobs/words/uuid") == []


def test_parts_of_several_generations_stay_as_long_as_their_checkpoint() -> None:
    """Fragments have generations of their own; a checkpoint has the highest of its parts."""
    store = MemoryStore()

    def path(epoch: int, generation: int, partition: int) -> str:
        folder = checkpoint.checkpoint_folder("words", "uuid", epoch, generation, 10 * epoch)
        name = checkpoint.part_path(folder, "counts", partition, checkpoint.PART)
        store.write(name, [b""])
        return name

    def complete(epoch: int, *parts: str) -> Manifest:
        listed = tuple(Part("counts", n, path, 1, 2) for n, path in enumerate(parts))
        return replace(manifest(*listed), epoch=epoch, generation=3, token_offset=10 * epoch)

    old = complete(6, path(6, 1, 0), path(6, 3, 1))
    new = complete(7, path(7, 1, 0), path(7, 3, 1))
    late = path(6, 2, 1)  # of an owner that was replaced
    checkpoint.collect(store, "words", "uuid", [new, old])
    assert set(store.list()) == {late, *checkpoint.needed([new, old])}
    checkpoint.collect(store, "words", "uuid", [new])
    assert set(store.list()) == checkpoint.needed([new])
    assert [(g, n) for n, part in enumerate(new.parts) for g in (1, 2, 3)
            if new.is_made_by(g, part)] == [(1, 0), (3, 1)]  # fmt: skip


UPLOAD = """
import sys
from perseid.state.durability import checkpoint
from perseid.state.durability.blob import Header, Identity
from perseid.state.durability.store import LocalStore
header = Header("snapshot", Identity("uuid", 1, "counts", 0), 7, 3, 70)
checkpoint.write_part(LocalStore(sys.argv[1]), sys.argv[2], header, {"a": b"x" * 5_000_000})
"""


def test_a_process_killed_during_the_upload_leaves_no_part(tmp_path: Path) -> None:
    points = tmp_path / "points"
    crashpoints.arm(points, "checkpoint.during-upload")
    command = [sys.executable, "-c", UPLOAD, str(tmp_path / "store"), PATH]
    env = {**os.environ, "PERSEID_CRASH_POINTS": str(points)}
    assert subprocess.run(command, env=env, check=False).returncode == -signal.SIGKILL
    assert not crashpoints.armed(points, "checkpoint.during-upload")
    store = LocalStore(tmp_path / "store")
    assert store.list() == []
    assert subprocess.run(command, env=env, check=False).returncode == 0
    assert store.list() == [PATH]


@given(
    whole=st.integers(1, 1000), links=st.lists(st.integers(1, 400), max_size=10),
    other=st.integers(1, 1000),
)  # fmt: skip
@settings(max_examples=200)
def test_chains_end_by_their_length_or_by_their_bytes(
    whole: int, links: list[int], other: int
) -> None:
    whole, links, other = whole << 12, [size << 12 for size in links], other << 12
    sizes = [whole, *links]
    chain = tuple(PartFile(f"p{i}", i, size, 1) for i, size in enumerate(sizes[:-1]))
    epoch = len(links)
    manifest = Manifest("j", "u", epoch, 1, 1, "r", 0, 0, (
        Part("a", 0, f"p{epoch}", sizes[-1], 1, chain), Part("a", 1, "q", other, 1),
    ))  # fmt: skip
    light = sum(links) <= max(1 << 16, (whole + other) / 2)
    assert manifest.may_grow == (len(links) < LINKS_MAX and light)
    assert manifest.needs == tuple(range(epoch + 1))
    newer = replace(manifest, parts=manifest.parts[1:])
    assert newer.needs == (epoch,)
