"""YAML to nodes with line numbers; refuses what a job file does not need.

The parser's events are read directly, never its constructors, so no tag can create an object.
Anchors, aliases, tags and further documents are refused (a "YAML bomb" is made of aliases) and
everything has a limit. Plain scalars follow YAML 1.2's core schema: `yes` is a string.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

FILE_BYTES_MAX = 128 * 1024  # a job of 300 operators has 40 KiB; the parser reads about 1 MB/s
DEPTH_MAX = 16               # the deepest documented key has depth 5
NODES_MAX = 20_000

_INT = re.compile(r"[-+]?[0-9]{1,18}\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,4})?\Z")
_WORDS = {"null": None, "~": None, "": None, "true": True, "false": False}


class YamlError(Exception):
    """The text is not the accepted YAML. `line` counts from 1."""

    def __init__(self, line: int, text: str) -> None:
        self.line, self.text = line, text
        super().__init__(line, text)


@dataclass(slots=True)
class Node:
    """A scalar, a list of nodes or a mapping of nodes; `key_lines` are the lines of its keys."""

    line: int
    value: Any
    key_lines: dict[str, int] = field(default_factory=dict)

    def plain(self) -> Any:
        """The same without lines."""
        if isinstance(self.value, dict):
            return {k: v.plain() for k, v in self.value.items()}
        if isinstance(self.value, list):
            return [v.plain() for v in self.value]
        return self.value

    def line_of(self, path: tuple[object, ...]) -> int:
        """The line of the key or item at `path`, or of the nearest existing node above it."""
        node, line = self, self.line
        for part in path:
            if isinstance(node.value, dict) and part in node.value:
                line, node = node.key_lines[str(part)], node.value[part]
            elif isinstance(node.value, list) and isinstance(part, int) and part < len(node.value):
                node = node.value[part]
                line = node.line
            else:
                break
        return line


def read(text: str) -> Node:
    """The one document in `text`; raises YamlError with the line of the first mistake."""
    reader = _Reader(text)
    try:
        return reader.document()
    except RecursionError:
        raise YamlError(1, f"is nested deeper than {DEPTH_MAX} levels; flatten it") from None


class _Reader:
    """Recursive descent over the parser's events; the depth limit bounds the recursion."""

    def __init__(self, text: str) -> None:
        self._events = _events(text)
        self._nodes = 0

    def document(self) -> Node:
        event = next(self._events)
        while type(event).__name__ in {"StreamStartEvent", "DocumentStartEvent"}:
            event = next(self._events)
        if type(event).__name__ == "StreamEndEvent":
            raise YamlError(1, "is empty; write at least name:, sources: and sinks:")
        node = self._node(event, 0)
        for rest in self._events:
            if type(rest).__name__ == "DocumentStartEvent":
                raise YamlError(_line(rest), "holds a second document; write one job in one file")
        return node

    def _node(self, event: Any, depth: int) -> Node:
        kind, line = type(event).__name__, _line(event)
        self._nodes += 1
        if self._nodes > NODES_MAX:
            raise YamlError(line, f"has more than {NODES_MAX} values; make the job smaller")
        if depth > DEPTH_MAX:
            raise YamlError(line, f"is nested deeper than {DEPTH_MAX} levels; flatten it")
        if kind == "AliasEvent" or event.anchor is not None:
            raise YamlError(line, "uses an anchor or alias (& or *); write the value out")
        if kind == "ScalarEvent":
            return Node(line, _scalar(event, line))
        _no_tag(event, line)
        if kind == "SequenceStartEvent":
            return Node(line, list(self._items(depth)))
        return self._mapping(line, depth)

    def _items(self, depth: int) -> Iterator[Node]:
        while type(event := next(self._events)).__name__ != "SequenceEndEvent":
            yield self._node(event, depth + 1)

    def _mapping(self, line: int, depth: int) -> Node:
        node = Node(line, {})
        while type(event := next(self._events)).__name__ != "MappingEndEvent":
            at = _line(event)
            if type(event).__name__ != "ScalarEvent" or event.anchor is not None:
                raise YamlError(at, "has a key that is no plain word; write `key: value`")
            _no_tag(event, at)
            key = event.value
            if key in node.value:
                raise YamlError(
                    at, f"has the key {key[:60]!r} twice (first on line {node.key_lines[key]}); "
                    "remove one of them"
                )  # fmt: skip
            node.value[key] = self._node(next(self._events), depth + 1)
            node.key_lines[key] = at
        return node


def _events(text: str) -> Iterator[Any]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        yield from YAML(typ="safe", pure=True).parse(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlError(mark.line + 1 if mark else 1, f"is no YAML: {_reason(error)}") from None
    except (YAMLError, ValueError, ArithmeticError, LookupError, AttributeError,
            TypeError, AssertionError) as error:  # fmt: skip
        # The parser raises some of Python's own errors for malformed escapes and directives.
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise YamlError(1, f"is no YAML: {first[:120]}") from None


def _reason(error: Any) -> str:
    parts = [p.strip() for p in (error.context, error.problem) if p]
    return ", ".join(parts).replace("\n", " ")[:200] or "it cannot be read"


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _no_tag(event: Any, line: int) -> None:
    tag = getattr(event, "ctag", None) or getattr(event, "tag", None)
    if tag is not None and str(tag) not in {"", "None"}:
        raise YamlError(line, f"uses the tag {str(tag)[:40]!r}; write the plain value")


def _scalar(event: Any, line: int) -> Any:
    _no_tag(event, line)
    text: str = event.value
    if event.style not in {None, ""}:  # quoted, | or >
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INT.match(text):
        return int(text)
    if len(text) < 64 and _FLOAT.match(text):
        number = float(text)
        return number if math.isfinite(number) else text
    return text
