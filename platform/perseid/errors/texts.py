"""The text of an error in a form that can be written anywhere: short, and valid UTF-8. Pure.

An exception's text may have a megabyte or half of a surrogate pair, or `str` of it may raise.
Records, events and statuses that report errors use these functions.
"""

from __future__ import annotations

import re

TEXT_MAX = 4000  # bytes of an error's whole report; full tracebacks are in the logs
QUOTED_MAX = 1500  # of these, bytes of a foreign exception's text: place and advice surround it
EVENT_MAX = 1000  # bytes of one event
_HEAD = 0.7  # kept from the start of a text that is cut: the place; its end has the advice
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def cut(text: str, bytes_max: int = TEXT_MAX) -> str:
    r"""`text` in at most `bytes_max` bytes of UTF-8; a note replaces its middle if it is too long.

    Control characters, and what UTF-8 cannot encode, are escaped.

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


def text_of(error: BaseException) -> str:
    """The text of `error`, uncut, even if `str` fails; its kind if the text is empty."""
    try:
        return str(error) or kind_of(error)
    except BaseException as wrong:
        return f"{kind_of(error)}, whose text cannot be made: that raises {kind_of(wrong)}"


def kind_of(error: BaseException) -> str:
    """The name of its class."""
    return type(error).__name__


def named(error: BaseException) -> str:
    """Kind and text, in Python's form."""
    kind, text = kind_of(error), text_of(error)
    return text if text.startswith(kind) else f"{kind}: {text}"


def _plain(text: str) -> bytes:
    escaped = _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
    return escaped.encode("utf-8", "backslashreplace")
