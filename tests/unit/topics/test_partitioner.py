"""murmur2 over many keys equals the definition, key by key."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perseid.kernels.hashing import murmur2
from perseid.topics.partitioner import partitions
from perseid.topics.transactions import octets


def one_by_one(key: bytes) -> int:
    """murmur2 as Kafka's clients spell it out."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = 0x9747B28C ^ len(key)
    whole = len(key) - len(key) % 4
    for i in range(0, whole, 4):
        k = int.from_bytes(key[i : i + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if len(key) > whole:
        h = (h ^ int.from_bytes(key[whole:], "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


@given(st.lists(st.binary(max_size=23), max_size=30))
def test_all_keys_at_once_as_one_by_one(keys: list[bytes]) -> None:
    assert murmur2(octets(keys)).tolist() == [one_by_one(k) for k in keys]


def test_values_known_from_other_clients() -> None:
    found = murmur2(octets([b"21", b"foobar", b"kafka"])).tolist()
    assert found == [0xC5F2F8EC, 0xD0E47BBE, 0xD067CF64]


@given(st.lists(st.none() | st.binary(max_size=5), max_size=40), st.integers(1, 9))
def test_keyed_records_do_not_depend_on_the_others(keys: list[bytes | None], count: int) -> None:
    found = partitions(octets(keys), count, 3).tolist()
    for key, partition in zip(keys, found, strict=True):
        expected = 3 % count if key is None else (one_by_one(key) & 0x7FFFFFFF) % count
        assert partition == expected


def test_records_without_key_stay_together_in_blocks() -> None:
    found = partitions(octets([None] * 2500), 4, 2).tolist()
    assert found == [2] * 1000 + [3] * 1000 + [0] * 500
