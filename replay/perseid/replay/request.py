"""What an audit is asked for: a range of a job's past, as users type it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from perseid.clocks import time_text
from perseid.errors import UsageError
from perseid.jobs.model import units

FORMS = "--epochs, --from and --to, --last, or --offsets"
EPOCHS_EXPECTED = "FIRST:LAST such as 100:200, both included, FIRST: to the last, or one epoch"
OFFSETS_EXPECTED = "TOPIC:PARTITION:OFFSET or TOPIC:PARTITION:FIRST-LAST, such as orders:0:100-200"
TIME_EXPECTED = "a time from 1970 on, such as 2026-11-21T08:00:00 (UTC unless it has an offset)"
SHARE_EXPECTED = "a share such as 1/16 or 5%, above 0 and at most 1"

_SHOWN = 60  # characters of a user's text in an error
_EPOCHS = re.compile(r"([0-9]{1,18})(:([0-9]{1,18})?)?")
_OFFSETS = re.compile(r"([A-Za-z0-9._-]{1,249}):([0-9]{1,9}):([0-9]{1,18})(?:-([0-9]{1,18}))?")


@dataclass(frozen=True, slots=True)
class SourceOffsets:
    """Records of one source partition, from offset `first` to `last`, both included."""

    topic: str
    partition: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Request:
    """One of four: epochs, times, the last milliseconds, or the epochs that read some offsets.

    `epochs`: first and last, both included; the last is None for the last committed one. `from_ms`
    (included) and `to_ms` (excluded) are token times since 1970; each may be left out.

    Raises:
        UsageError: none or several of the four, or a range that ends before it begins.
    """

    epochs: tuple[int, int | None] | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    last_ms: int | None = None
    offsets: SourceOffsets | None = None

    def __post_init__(self) -> None:
        times = self.from_ms is not None or self.to_ms is not None
        given = (self.epochs is not None, times, self.last_ms is not None, self.offsets is not None)
        if sum(given) != 1:
            what = "several" if any(given) else "none"
            raise UsageError(f"the range of an audit: expected one of {FORMS}, and {what} is given")
        if self.epochs is not None and self.epochs[1] is not None:
            _ordered("--epochs", *self.epochs)
        if self.offsets is not None:
            _ordered("--offsets", self.offsets.first, self.offsets.last)
        if self.from_ms is not None and self.to_ms is not None and self.to_ms <= self.from_ms:
            raise UsageError("--to: expected a time after that of --from")
        if self.last_ms is not None and self.last_ms <= 0:
            raise UsageError("--last: expected a duration above 0")

    def __str__(self) -> str:
        """As options of the command.

        >>> print(Request(epochs=(7, None)), Request(last_ms=3_600_000), Request(to_ms=1_000))
        --epochs 7: --last 3600s --to 1970-01-01T00:00:01.000+00:00
        """
        if self.epochs is not None:
            first, last = self.epochs
            return f"--epochs {first}:{'' if last is None else last}"
        if self.offsets is not None:
            o = self.offsets
            return f"--offsets {o.topic}:{o.partition}:{o.first}-{o.last}"
        if self.last_ms is not None:
            return f"--last {self.last_ms / 1000:g}s"
        times = ("--from", self.from_ms), ("--to", self.to_ms)
        return " ".join(f"{name} {time_text(ms)}" for name, ms in times if ms is not None)


def parsed(
    *, epochs: str | None = None, from_: str | None = None, to: str | None = None,
    last: str | None = None, offsets: str | None = None,
) -> Request:  # fmt: skip
    """The request of a command's options.

    >>> parsed(epochs="100:200").epochs, parsed(last="1h").last_ms
    ((100, 200), 3600000)

    Raises:
        UsageError: names the option and what was expected.
    """
    return Request(
        None if epochs is None else _epochs(epochs),
        None if from_ is None else _time_ms("--from", from_),
        None if to is None else _time_ms("--to", to),
        None if last is None else _duration_ms("--last", last),
        None if offsets is None else _offsets(offsets),
    )


def share_of(text: str) -> Fraction:
    """That of `--sample`.

    >>> share_of("1/16"), share_of("5%")
    (Fraction(1, 16), Fraction(1, 20))
    """
    whole, percent, rest = text.strip().partition("%")
    try:
        found = Fraction(whole) / (100 if percent else 1)
    except (ValueError, ZeroDivisionError):
        found = Fraction(0)
    if rest or not 0 < found <= 1:
        raise UsageError(f"--sample {text[:_SHOWN]!r}: expected {SHARE_EXPECTED}")
    return found


def _ordered(option: str, first: int, last: int | None) -> None:
    if last is not None and last < first:
        raise UsageError(f"{option}: the last one, {last}, is below the first one, {first}")


def _epochs(text: str) -> tuple[int, int | None]:
    found = _EPOCHS.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"--epochs {text[:_SHOWN]!r}: expected {EPOCHS_EXPECTED}")
    first = int(found[1])
    if found[2] is None:
        return first, first
    return first, None if found[3] is None else int(found[3])


def _offsets(text: str) -> SourceOffsets:
    found = _OFFSETS.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"--offsets {text[:_SHOWN]!r}: expected {OFFSETS_EXPECTED}")
    first = int(found[3])
    last = first if found[4] is None else int(found[4])
    return SourceOffsets(found[1], int(found[2]), first, last)


def _time_ms(option: str, text: str) -> int:
    try:
        time_ms = units.time_ms(text)
    except ValueError:
        time_ms = -1
    if time_ms < 0:
        raise UsageError(f"{option} {text[:_SHOWN]!r}: expected {TIME_EXPECTED}")
    return time_ms


def _duration_ms(option: str, text: str) -> int:
    try:
        return round(units.seconds(text.strip()) * 1000)
    except ValueError as error:
        raise UsageError(f"{option} {text[:_SHOWN]!r}: expected {error}") from None
