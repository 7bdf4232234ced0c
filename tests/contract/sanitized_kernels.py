"""Runs the kernels of a library that is compiled with sanitizers: their unit tests, then a fuzzer.

Run by `test_sanitizers.py`, in a process of its own, since the sanitizers must be loaded first and
end the process at the first fault. Arguments: the library, a seed, seconds to fuzz.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from perseid.kernels import build, json_decode
from perseid.kernels.library import binary, kernels
from perseid.worker.formats import decode, encode

HERE = Path(__file__).parent
UNIT_TESTS = HERE.parent / "unit/kernels"
CORPUS = HERE / "json_corpus"
SCHEMA = pa.schema(
    [("s", pa.string()), ("n", pa.int64()), ("f", pa.float64()), ("b", pa.bool_()),
     ("t", pa.timestamp("us", "UTC")), ("raw", pa.binary())]
)  # fmt: skip
BATCH = 200
TOKENS = [
    b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"-", b".", b"e", b"E+", b"0", b"9", b"null",
    b"true", b"\\u0000", b"\\ud83d", b"\\ude00", b"\\u00e9", b"\n", b" ", b"\x00", b"\xff", b"\xc3",
    b"\xed\xa0\x80", b"\xe2\x82\xac", b"\xf0\x9f\x98\x80", b'"n":', b'"s": "', b"1" * 20, b"[" * 70,
    b"x" * 300, b"2026-02-29T00:00:00Z", b"+01:00",
]  # fmt: skip


def mutated(corpus: Sequence[bytes], chance: random.Random) -> bytes:
    """A text of the corpus after some edits; sometimes none."""
    text = bytearray(chance.choice(corpus))
    for _ in range(chance.randrange(4)):
        at = chance.randrange(len(text) + 1)
        kind = chance.randrange(4)
        if kind == 0:
            text[at:at] = chance.choice(TOKENS)
        elif kind == 1:
            del text[at : at + chance.randrange(1, 9)]
        elif kind == 2 and at < len(text):
            text[at] = chance.randrange(256)
        else:
            text[at:] = chance.choice(corpus)[at:]
    return bytes(text)


def exact(texts: Sequence[bytes]) -> pa.BinaryArray:
    """The texts in memory that ends where they end, so that a read beyond them is found."""
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
    data = np.frombuffer(b"".join(texts), np.uint8).copy()
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(texts), buffers)


def check(texts: Sequence[bytes]) -> int:
    """Reads the texts, compares with the general way, writes and reads again; how many it took."""
    found, left = json_decode.decode(exact(texts), SCHEMA)
    found.validate(full=True)
    unread = set(left.tolist())
    taken = [text for i, text in enumerate(texts) if i not in unread]
    wanted, refused = decode._decode_any_json(pa.array(taken, pa.binary()), SCHEMA)
    assert not refused, [taken[i] for i in refused]
    for text, one, other in zip(taken, found.to_pylist(), wanted.to_pylist(), strict=True):
        assert repr(one) == repr(other), text
    plain = found.drop(["raw"])  # which has no JSON form
    again, refused = decode.make("json", {"s": "string", "n": "int64", "f": "float64",
                                          "b": "bool", "t": "timestamp"}, None).decode(
        encode.json_values(plain))  # fmt: skip
    assert not refused
    assert repr(again.to_pylist()) == repr(plain.to_pylist())
    return len(taken)


def fuzz(seed: int, seconds: float) -> str:
    """Checks batches of mutated texts for so long."""
    corpus = [path.read_bytes() for path in sorted(CORPUS.iterdir())]
    chance, until_s = random.Random(seed), time.monotonic() + seconds
    count, taken = len(corpus), check(corpus)
    while time.monotonic() < until_s:
        texts = [mutated(corpus, chance) for _ in range(BATCH)]
        count, taken = count + BATCH, taken + check(texts)
    return f"fuzzed {count} texts, of which the kernel took {taken}; seed {seed}"


def overflow() -> None:
    """A fault that the sanitizers must find: room for one row, and two texts."""
    texts, taken = exact([b"{}", b"{}"]), np.empty(1, np.bool_)
    kernels().perseid_json_decode(binary(texts), 2, None, 0, taken.ctypes.data)


def main(library: str, seed: str, seconds: str) -> int:
    build.library = lambda: Path(library)
    if seed == "overflow":
        overflow()
        return 0
    # what is compiled there, and arrays of gigabytes, are no business of the sanitizers
    left_out = "not test_build and not one_array_cannot_hold and not more_than_an_array_holds"
    tests = pytest.main(["-q", "-p", "no:cacheprovider", "-k", left_out, str(UNIT_TESTS)])
    if tests == pytest.ExitCode.OK:
        print(fuzz(int(seed), float(seconds)))
    return int(tests)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
