"""Limits the length of log entries: an operator may print anything.

The cut text ends with the number of missing characters or lines. A traceback keeps its first and
its last lines, which show the origin and the error.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TextIO

LINE_CHARS_MAX = 16_384
TRACE_LINES_MAX = 400


def cut_line(text: str) -> str:
    """`text` with at most LINE_CHARS_MAX characters, and the number of missing ones."""
    missing = len(text) - LINE_CHARS_MAX
    return text if missing <= 0 else f"{text[:LINE_CHARS_MAX]}... ({missing} characters more)"


def cut_trace(text: str) -> str:
    """A traceback with long lines, and too many lines, cut."""
    lines = text.split("\n")
    if len(lines) <= TRACE_LINES_MAX and len(text) <= LINE_CHARS_MAX:
        return text
    lines = [cut_line(line) for line in lines]
    missing = len(lines) - TRACE_LINES_MAX
    if missing > 0:
        half = TRACE_LINES_MAX // 2
        lines = [*lines[:half], f"... ({missing} lines more)", *lines[-half:]]
    return "\n".join(lines)


class CutLines:
    """A text stream that cuts long lines and passes everything to another stream."""

    def __init__(self, to: TextIO) -> None:
        self._to, self._column = to, 0  # characters of the unfinished line

    def __getattr__(self, name: str) -> Any:
        return getattr(self._to, name)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def write(self, text: str) -> int:
        if len(text) + self._column <= LINE_CHARS_MAX:  # the usual case
            end = text.rfind("\n")
            self._column = len(text) - end - 1 if end >= 0 else self._column + len(text)
            self._to.write(text)
            return len(text)
        for line in text.splitlines(keepends=True):
            self._write_line(line)
        return len(text)

    def _write_line(self, line: str) -> None:
        body = line.rstrip("\n")
        room = max(0, LINE_CHARS_MAX - self._column)
        if len(body) > room and self._column <= LINE_CHARS_MAX:
            self._to.write(f"{body[:room]}... ({len(body) - room} characters more)")
        else:
            self._to.write(body[:room])
        self._column += len(body)
        if len(body) < len(line):
            self._to.write("\n")
            self._column = 0
