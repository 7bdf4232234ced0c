"""What an error says, as a text that can be written anywhere: short, and always valid UTF-8. Pure.

An exception may say a megabyte or half of a surrogate pair, or raise when it is asked. Whatever
tells of errors (a record, an event, a status) passes their text through here.
"""

from __future__ import annotations

import re

TEXT_MAX = 4000  # bytes of all that is told of one error: a whole traceback is the logs' affair
QUOTED_MAX = 1500  # of them, of what somebody else's exception says: place and advice stand around
EVENT_MAX = 1000  # bytes of one event
_HEAD = 0.7  # of a text that is cut: it says where, and its end says what to do
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def cut(text: str, bytes_max: int = TEXT_MAX) -> str:
    r"""`text` in at most so many bytes of UTF-8; what is left out is in its middle, and is told.

    Control characters, and what UTF-8 has no form for, are escaped.

    >>> cut("a lone \ud800")
    'a lone \\ud800'
    """
    is_long = len(text) > 2 * bytes_max
    plain = _plain(text[:bytes_max] + text[-bytes_max:] if is_long else text)
    if not is_long and len(plain) <= bytes_max:
        return plain.decode()
    between = f" [... cut: {len(text)} characters in all ...] "
    room = max(0, bytes_max - len(between))
    head = round(room * _HEAD)
    tail = plain[len(plain) - (room - head) :]
    return plain[:head].decode("utf-8", "ignore") + between + tail.decode("utf-8", "ignore")


def said(error: BaseException) -> str:
    """What `error` says, uncut, whatever it is made of; its kind where it says nothing."""
    try:
        return str(error) or kind_of(error)
    except BaseException as wrong:
        return f"{kind_of(error)}, whose text cannot be made: that raises {kind_of(wrong)}"


def kind_of(error: BaseException) -> str:
    """The name of its class."""
    return type(error).__name__


def named(error: BaseException) -> str:
    """Kind and text, as Python writes them."""
    kind, text = kind_of(error), said(error)
    return text if text.startswith(kind) else f"{kind}: {text}"


def _plain(text: str) -> bytes:
    escaped = _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
    return escaped.encode("utf-8", "backslashreplace")
