"""Keys and values of records in reports: redacted, or as text of which the differences are marked.

Pure. A redacted value is `<LENGTH bytes #TAG>`. Equal values of one report have equal tags, so a
reader sees which differ. The tag is keyed with bytes that are not kept: without them a plain hash
of a short key, such as an account number, would be found by hashing all of them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import replace
from difflib import SequenceMatcher

from perseid.replay.findings import Audit, Cause, Difference

Pieces = tuple[tuple[str, bool], ...]  # of a text, each with whether it differs from the other text

_TAG_BYTES = 4
_LEAD = 40  # characters that are shown before the first difference
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")  # in no text, so the bytes are not one
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")
_BYTES = re.compile(r"..?", re.DOTALL)  # of hexadecimal digits


def redacted(audit: Audit, secret: bytes) -> Audit:
    """`audit` without keys and values of records. `secret`: 16 to 64 random bytes, used once."""
    if audit.redacted:
        return audit
    causes = tuple(_cause(cause, secret) for cause in audit.causes)
    return replace(audit, causes=causes, redacted=True)


def _cause(cause: Cause, secret: bytes) -> Cause:
    return replace(cause, samples=tuple(_difference(one, secret) for one in cause.samples))


def _difference(one: Difference, secret: bytes) -> Difference:
    committed, made = (
        record and replace(record, key=tag(record.key, secret), value=tag(record.value, secret))
        for record in (one.committed, one.made)
    )
    return replace(one, committed=committed, made=made)


def tag(value: bytes | None, secret: bytes) -> bytes | None:
    """What a report has in the place of `value`."""
    if value is None:
        return None
    mark = hashlib.blake2b(value, digest_size=_TAG_BYTES, key=secret).hexdigest()
    return f"<{len(value)} bytes #{mark}>".encode()


def key_of(one: Difference, chars_max: int) -> str:
    """The key of a difference's records, or both, as text; "" where no record is known."""
    keys = [record.key for record in (one.committed, one.made) if record]
    return ", made: ".join(_text(key, chars_max) for key in dict.fromkeys(keys))


def values_of(one: Difference, chars_max: int) -> tuple[Pieces, Pieces]:
    """The values that were committed and made, as `shown`."""
    committed, made = (record.value if record else None for record in (one.committed, one.made))
    return shown(committed, made, chars_max)


def shown(committed: bytes | None, made: bytes | None, chars_max: int) -> tuple[Pieces, Pieces]:
    """Both values as text, or in hexadecimal digits if one is not text, with differences marked.

    Of longer values the part from the first difference is shown. None is shown as `null`.
    """
    if committed is None or made is None:
        return ((_text(committed, chars_max), False),), ((_text(made, chars_max), False),)
    one, other = _texts(committed, made)
    pairs = enumerate(zip(one, other, strict=False))
    first = next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
    is_cut = one != other and max(len(one), len(other)) > chars_max
    start = max(0, first - _LEAD) // 2 * 2 if is_cut else 0  # a byte has two hexadecimal digits
    ours, theirs = (_window(text, start, chars_max) for text in (one, other))
    marks = SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes()
    return (
        tuple(_pieces((ours[a:b], kind) for kind, a, b, _, _ in marks)),
        tuple(_pieces((theirs[a:b], kind) for kind, _, _, a, b in marks)),
    )


def joined(pieces: Pieces) -> str:
    """The text of `pieces` without marks."""
    return "".join(text for text, _ in pieces)


def printable(text: str, chars_max: int) -> str:
    """`text` on one line, without characters that hide or move others, in `chars_max` or so."""
    rest = len(text) - chars_max
    line = "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:chars_max]
    )
    return f"{line} ... ({rest} more)" if rest > 0 else line


def _texts(*values: bytes) -> list[str]:
    """All as text if all are text, otherwise all in hexadecimal digits."""
    try:
        texts = [value.decode() for value in values]
    except UnicodeDecodeError:
        return [f"0x{value.hex()}" for value in values]
    if any(map(_CONTROL.search, texts)):
        return [f"0x{value.hex()}" for value in values]
    return texts


def _text(value: bytes | None, chars_max: int) -> str:
    return "null" if value is None else printable(_texts(value)[0], chars_max)


def _window(text: str, start: int, chars_max: int) -> list[str]:
    """The words of the part of `text` that is shown."""
    pattern = _BYTES if text.startswith("0x") else _WORDS
    words = pattern.findall(printable(text[start:], chars_max))
    return ["... ", *words] if start else words


def _pieces(parts: Iterator[tuple[list[str], str]]) -> Iterator[tuple[str, bool]]:
    for words, kind in parts:
        if words:
            yield "".join(words), kind != "equal"
