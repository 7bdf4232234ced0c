"""Types exceptions outside the tree: transient if a service is lost, else unexpected. Pure."""

from __future__ import annotations

import errno
import traceback
from collections.abc import Callable, Iterator

from perseid.errors import PerseidError, RetryableError, UnexpectedError
from perseid.errors.texts import QUOTED_MAX, cut, named

# Classes of Python and of libraries: a service does not answer.
_LOST = frozenset({
    "ConnectionError", "TimeoutError", "Timeout", "gaierror",    # Python, requests, redis
    "TransportError",                                             # httpx
    "EndpointConnectionError", "HTTPClientError",                 # botocore
    "KafkaException", "KazooException", "Py4JNetworkError",
})  # fmt: skip
_LOST_NUMBERS = frozenset({
    errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.EMFILE, errno.ENFILE, errno.ENOMEM,
    errno.EAGAIN, errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ENETUNREACH, errno.ENETDOWN,
})  # fmt: skip
_QUOTED_MAX = 4 * QUOTED_MAX  # characters of a text that are examined
_DEPTH_MAX = 20  # of the chain of causes
_FRAMES_MAX = 8  # number of frames shown, the last ones


def is_lost(error: BaseException) -> bool:
    """Whether it, or one of its causes, is about a service or resource that is unavailable."""
    return any(map(_is_lost, _chain(error)))


def typed(error: BaseException, where: str, quote: Callable[[str], str] = str) -> PerseidError:
    """`error` as one of the tree. `where`: what raised it; `quote`: masks its text."""
    if isinstance(error, PerseidError):
        return error
    quoted = cut(quote(named(error)[:_QUOTED_MAX]), QUOTED_MAX)
    message = f"{where} raised {quoted}\n{_frames(error)}"
    return RetryableError(message) if is_lost(error) else UnexpectedError(message)


def _is_lost(one: BaseException) -> bool:
    if isinstance(one, BaseExceptionGroup):
        return all(map(is_lost, one.exceptions))
    known = any(c.__name__ in _LOST for c in type(one).__mro__)
    return known or (isinstance(one, OSError) and one.errno in _LOST_NUMBERS)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    for _ in range(_DEPTH_MAX):
        if error is None:
            return
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _frames(error: BaseException) -> str:
    """The places of the last frames, without their source lines."""
    found = traceback.extract_tb(error.__traceback__)[-_FRAMES_MAX:]
    return "".join(f"  {f.filename}:{f.lineno} in {f.name}\n" for f in found)
