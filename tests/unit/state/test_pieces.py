"""Large files in pieces: what comes back, what is written again, what is refused."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.fs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perseid.errors import DamagedFile, RetryableError
from perseid.state.durability import pieces
from perseid.state.durability.store import ArrowStore, LocalStore, Store
from perseid.testing.store import MemoryStore

SMALL = 64


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", SMALL)
    monkeypatch.setattr(pieces, "CHUNK_BYTES", 10)


class Counting(MemoryStore):
    """Reports what was written, and dies in front of a given write."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[str] = []
        self.dies_before: int | None = None

    def write(self, path: str, chunks: Iterable[Any]) -> tuple[int, int]:
        if len(self.written) == self.dies_before:
            raise RetryableError("the process dies here")
        self.written.append(path)
        return super().write(path, chunks)


def chunked(data: bytes, rng: random.Random) -> list[memoryview]:
    """`data` cut anywhere."""
    cuts = sorted({0, len(data), *(rng.randrange(len(data) + 1) for _ in range(3))})
    return [memoryview(data)[a:b] for a, b in pairwise(cuts)]


@settings(max_examples=60, deadline=None)
@given(size=st.integers(1, 400), seed=st.integers(0, 10**6))
def test_what_was_cut_anywhere_comes_back(size: int, seed: int) -> None:
    rng, store = random.Random(seed), MemoryStore()
    data = rng.randbytes(size)
    assert pieces.write_pieces(store, "c/x.part", chunked(data, rng)) == size
    assert bytes(pieces.read_pieces(store, "c/x.part", size)) == data
    assert len(store.content) == max(1, -(-size // SMALL))
    assert {pieces.file_of(path) for path in store.content} == {"c/x.part"}


def test_small_files_lie_under_their_own_path() -> None:
    store = MemoryStore()
    pieces.write_pieces(store, "c/x.part", [memoryview(b"abc")])
    assert store.content == {"c/x.part": b"abc"}
    assert pieces.file_of("c/x.part") == "c/x.part"


def test_an_upload_that_died_resumes_where_it_was() -> None:
    store, data = Counting(), random.Random(1).randbytes(10 * SMALL - 5)
    store.dies_before = 6
    with pytest.raises(RetryableError):
        pieces.write_pieces(store, "c/x.part", [memoryview(data)])
    store.dies_before = None
    pieces.write_pieces(store, "c/x.part", [memoryview(data)])
    assert store.written == [pieces.piece_path("c/x.part", n) for n in range(10)]
    assert bytes(pieces.read_pieces(store, "c/x.part", len(data))) == data


def test_a_piece_that_is_not_right_is_written_again() -> None:
    """Of another source, torn, or with a byte that flipped: none is taken for done."""
    store, data = Counting(), random.Random(2).randbytes(5 * SMALL)
    pieces.write_pieces(store, "c/x.part", [memoryview(random.Random(3).randbytes(SMALL + 1))])
    pieces.write_pieces(store, "c/x.part", [memoryview(data)])
    flipped = bytearray(store.content["c/x.part.0003"])
    flipped[7] ^= 1
    store.content["c/x.part.0003"] = bytes(flipped)
    store.content["c/x.part.0004"] = store.content["c/x.part.0004"][:-9]
    store.written.clear()
    pieces.write_pieces(store, "c/x.part", [memoryview(data)])
    assert store.written == ["c/x.part.0003", "c/x.part.0004"]
    assert bytes(pieces.read_pieces(store, "c/x.part", len(data))) == data


def test_every_damage_of_a_piece_is_found() -> None:
    store, data = MemoryStore(), random.Random(4).randbytes(2 * SMALL)
    pieces.write_pieces(store, "c/x.part", [memoryview(data)])
    whole = dict(store.content)
    for path, content in whole.items():
        damages = [content[:size] for size in range(len(content))]
        damages += [content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :]
                    for at in range(len(content))]  # fmt: skip
        for damage in damages:
            store.content = {**whole, path: damage}
            with pytest.raises(DamagedFile, match=path):
                pieces.read_pieces(store, "c/x.part", len(data))
        store.content = {p: c for p, c in whole.items() if p != path}
        with pytest.raises(DamagedFile, match=f"{path} is missing"):
            pieces.read_pieces(store, "c/x.part", len(data))


def test_pieces_of_another_size_are_refused() -> None:
    store, data = MemoryStore(), random.Random(5).randbytes(2 * SMALL)
    pieces.write_pieces(store, "c/x.part", [memoryview(data)])
    with pytest.raises(DamagedFile, match=r"x.part.0001 has 64 bytes, expected 63"):
        pieces.read_pieces(store, "c/x.part", len(data) - 1)


@pytest.mark.parametrize("kind", ["local", "arrow"])
def test_pieces_in_stores_on_disk(tmp_path: Path, kind: str) -> None:
    store: Store = LocalStore(tmp_path)
    if kind == "arrow":
        store = ArrowStore(pyarrow.fs.LocalFileSystem(), str(tmp_path))
    data = random.Random(6).randbytes(3 * SMALL + 1)
    for _ in range(2):  # the second time everything is there
        pieces.write_pieces(store, "jobs/c/x.part", [memoryview(data)])
        assert bytes(pieces.read_pieces(store, "jobs/c/x.part", len(data))) == data
    assert len(store.list("jobs")) == 4
