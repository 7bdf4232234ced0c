"""What the user asked of a benchmark, read before any cluster is started. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from perseid.errors import UsageError

TIMED = "tmi"  # among the sizes of checkpoint: its second part
_UNITS = {"kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user asked for. `peers` are those that run; None means the benchmark's own default.

    `state` and `sizes` are bytes; `timed`: whether TIMED is among the sizes, as it is by default.
    """

    peers: tuple[str, ...] = ()
    runs: int | None = None
    state: int | None = None
    kills: int | None = None
    lines: int | None = None
    records: int | None = None
    seconds: int | None = None
    sizes: tuple[int, ...] | None = None
    timed: bool = True
    keys: tuple[int, ...] | None = None
    partitions: tuple[int, ...] | None = None
    jobs: tuple[int, ...] | None = None
    minutes: float | None = None
    master: str | None = None
    state_dir: Path | None = None


def parse_size(option: str, text: str | None) -> int | None:
    """Bytes of "100MB", or None; decimal and binary units. UsageError for anything else."""
    return None if text is None else _bytes(option, text)


def parse_sizes(
    option: str, text: str | None, *, may_be_timed: bool
) -> tuple[tuple[int, ...] | None, bool]:
    """Bytes of "10MB,1GB", in the order given, and whether TIMED, if it may, stands among them.

    `text` None: the benchmark's own sizes, TIMED among them.
    """
    if text is None:
        return None, True
    given = text.split(",")
    plain = [size for size in given if not (may_be_timed and size == TIMED)]
    sizes = tuple(_bytes(option, size) for size in dict.fromkeys(plain))
    return sizes, len(plain) < len(given)


def parse_numbers(option: str, text: str | None) -> tuple[int, ...] | None:
    """The numbers of "1000,100000", in order, or None; UsageError for anything else."""
    if text is None:
        return None
    try:
        found = sorted({int(number) for number in text.split(",")})
    except ValueError:
        found = []
    if not found or found[0] < 1:
        raise UsageError(f"{option} {text}: expected whole numbers from 1 such as 1000,100000")
    return tuple(found)


def _bytes(option: str, text: str) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)", text)
    if found is None or found[2] not in _UNITS:
        raise UsageError(f"{option} {text}: expected a size such as 100MB or 64MiB")
    return int(float(found[1]) * _UNITS[found[2]])
