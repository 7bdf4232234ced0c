"""Log entries of all processes: one entry per line, as text or as JSON, with its context.

Modules log with the standard library as usual. `about` and `bind` set the context (job, epoch,
generation, operator, partition) for the running thread; `extra={"job": ...}` sets it for one entry.
Only the fields below are written, and every text in an entry is escaped: a name or an error with a
line break cannot look like another entry, nor move a terminal's cursor.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from datetime import datetime
from typing import Any, Literal, ParamSpec, TextIO, TypeVar, cast

from perseid.errors import UsageError
from perseid.logs.lengths import CutLines, cut_line, cut_trace
from perseid.logs.thinning import Thinned

Format = Literal["text", "json"]
FORMATS: tuple[Format, ...] = ("text", "json")
FIELDS = ("job", "generation", "epoch", "operator", "partition", "coordinator_epoch")
# In the environment, so that all children of a process write in the same way.
FORMAT, LEVEL, PROCESS = "PERSEID_LOG_FORMAT", "PERSEID_LOG", "PERSEID_LOG_PROCESS"
QUIET = ("kazoo", "py4j", "httpx", "httpcore")  # from WARNING on: they log every request

# Control characters, line ends of all kinds, and marks that change the writing direction.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_PLAIN = re.compile(r"[\w.:/@+-]+")
_SPELLED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

P = ParamSpec("P")
T = TypeVar("T")
_about: ContextVar[Mapping[str, Any]] = ContextVar("perseid_logs_about")
_of_process: dict[str, Any] = {}


@contextmanager
def about(**fields: Any) -> Iterator[None]:
    """Adds fields to this thread's entries while the block runs."""
    before = _about.set({**_about.get({}), **fields})
    try:
        yield
    finally:
        _about.reset(before)


def bind(**fields: Any) -> None:
    """Sets the fields of this thread's entries, replacing all others."""
    _about.set(fields)


def bind_process(**fields: Any) -> None:
    """Sets fields of all entries of this process; None removes a field."""
    _of_process.update(fields)


def carried(call: Callable[P, T]) -> Callable[P, T]:
    """`call` for another thread, with the fields of this one."""
    context = copy_context()

    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return context.run(call, *args, **kwargs)

    return run


def escaped(text: str) -> str:
    r"""`text` on one line, without characters that a terminal would interpret.

    >>> escaped("two\nlines")
    'two\\nlines'
    """
    return _UNPRINTABLE.sub(lambda found: _spelled(found[0]), text)


def set_up(process: str, log_format: str | None = None) -> None:
    """Sets up this process's logging, on stderr: `process` is its name, such as w1.

    Without `log_format` $PERSEID_LOG_FORMAT decides, default text; the level is $PERSEID_LOG,
    default INFO. UsageError for invalid values. Uncaught errors are logged as well. Repeated
    warnings are thinned, and long texts are cut.
    """
    chosen, level = chosen_format(log_format), os.environ.get(LEVEL, "INFO").upper()
    if level not in logging.getLevelNamesMapping():
        raise UsageError(f"{LEVEL}={level!r}: expected DEBUG, INFO, WARNING or ERROR")
    os.environ.update({FORMAT: chosen, PROCESS: process})
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter(chosen, process))
    handler.addFilter(Thinned(job_of=job_of))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    sys.excepthook = lambda kind, error, trace: _uncaught((kind, error, trace))
    threading.excepthook = lambda a: _uncaught((a.exc_type, a.exc_value, a.exc_traceback))


def set_up_child() -> None:
    """Like `set_up`, in a process that Spark has started for a perseid process.

    It runs the code of jobs, whose prints go into the log as well.
    """
    set_up(os.environ.get(PROCESS, "python"))
    sys.stdout = cast(TextIO, CutLines(sys.stdout))
    sys.stderr = cast(TextIO, CutLines(sys.stderr))


def chosen_format(asked: str | None = None) -> Format:
    """The requested format, else that of the environment; UsageError for an unknown one."""
    found = asked or os.environ.get(FORMAT) or "text"
    for known in FORMATS:
        if found == known:
            return known
    raise UsageError(f"log format {found[:40]!r}: expected {' or '.join(FORMATS)} ({FORMAT})")


def add_option(parser: ArgumentParser) -> None:
    """Adds `--log-format`; its value goes to `set_up`."""
    parser.add_argument(
        "--log-format", choices=FORMATS, help=f"of this process's log; default ${FORMAT}, or text"
    )


def formatter(chosen: Format, process: str) -> logging.Formatter:
    return _Json(process) if chosen == "json" else _Text()


def line(logger: str, process: str, text: str, log_format: str | None = None) -> str:
    """One entry with its line end, for a process that writes into another one's log file."""
    entry = logging.makeLogRecord({"name": logger, "msg": text, "levelno": logging.INFO,
                                   "levelname": "INFO"})  # fmt: skip
    return formatter(chosen_format(log_format), process).format(entry) + "\n"


class _Text(logging.Formatter):
    """`time LEVEL logger: message [job=j epoch=7]`; the lines of a traceback follow, indented."""

    def format(self, record: logging.LogRecord) -> str:
        shown = " ".join(f"{name}={_value(value)}" for name, value in fields_of(record).items())
        parts = [
            f"{self.formatTime(record)} {record.levelname} {record.name}: "
            f"{escaped(cut_line(record.getMessage()))}{f' [{shown}]' if shown else ''}"
        ]
        trace = _trace(self, record)
        parts += [f"    {escaped(part)}" for part in trace.splitlines()]
        return "\n".join(parts)


class _Json(logging.Formatter):
    """One object per line. The time comes first, with its zone, so that lines sort."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created).astimezone()
        entry: dict[str, Any] = {
            "time": at.isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "process": self._process,
            "pid": record.process,
            "message": cut_line(record.getMessage()),
            **fields_of(record),
        }
        trace = _trace(self, record)
        if trace:
            entry["exception"] = trace
        return json.dumps(entry, default=str)


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """An entry's fields: its own, else its thread's, else its process's."""
    found = {**_of_process, **_about.get({}), **vars(record)}
    return {name: found[name] for name in FIELDS if found.get(name) is not None}


def job_of(record: logging.LogRecord) -> str:
    """The job of an entry, "" without one."""
    return str(fields_of(record).get("job", ""))


def _trace(by: logging.Formatter, record: logging.LogRecord) -> str:
    if record.exc_info is None or record.exc_info[0] is None:
        return ""
    return cut_trace(by.formatException(record.exc_info))


def _value(value: Any) -> str:
    text = escaped(str(value))
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def _spelled(character: str) -> str:
    return _SPELLED.get(character) or character.encode("unicode_escape").decode()


def _uncaught(error: Any) -> None:
    if isinstance(error[1], KeyboardInterrupt):
        return
    logging.getLogger("perseid").critical("an uncaught error", exc_info=error)
