"""Durations ("10s"), sizes ("64MiB") and times as users write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

DURATION_EXPECTED = 'a duration such as "500ms", "10s", "5m" or "1h"'
SHARE_EXPECTED = 'a share from 0% to 100%, such as "1%" or "0.5%"'
SIZE_EXPECTED = 'a size such as "64MiB" or "512KiB"'

_NUMBER = r"(?P<number>[0-9]{1,12}(\.[0-9]{1,6})?)\s*"
_DURATION = re.compile(_NUMBER + r"(?P<unit>ms|s|m|min|h|d)\Z")
_SIZE = re.compile(_NUMBER + r"(?P<unit>B|KiB|MiB|GiB|kB|KB|MB|GB)\Z")
_SHARE = re.compile(r"(?P<percent>[0-9]{1,3}(\.[0-9]{1,6})?)\s*%\Z")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {
    "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
    "kB": 1000, "KB": 1000, "MB": 1000**2, "GB": 1000**3,
}  # fmt: skip


def seconds(text: object) -> float:
    """The duration in seconds; the ValueError contains what was expected."""
    found = _DURATION.match(text) if isinstance(text, str) else None
    if found is None:
        raise ValueError(DURATION_EXPECTED)
    return round(float(found["number"]) * _SECONDS[found["unit"]], 6)


def size_bytes(text: object) -> int:
    """The size in bytes; the ValueError contains what was expected."""
    found = _SIZE.match(text) if isinstance(text, str) else None
    if found is None:
        raise ValueError(SIZE_EXPECTED)
    return int(float(found["number"]) * _BYTES[found["unit"]])


def share(text: object) -> float:
    """The share, 0 to 1, of a text such as "1%"; the ValueError contains what was expected."""
    found = _SHARE.match(text) if isinstance(text, str) else None
    percent = float(found["percent"]) if found is not None else -1.0
    if not 0 <= percent <= 100:
        raise ValueError(SHARE_EXPECTED)
    return percent / 100


def time(text: object) -> datetime:
    """An ISO time, in UTC unless it has an offset; ValueError for anything else."""
    when = datetime.fromisoformat(text if isinstance(text, str) else "")
    try:
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).astimezone(UTC)
    except OverflowError as error:
        raise ValueError(str(error)) from error


def time_ms(text: object) -> int:
    """The same in milliseconds since 1970."""
    return round(time(text).timestamp() * 1000)
