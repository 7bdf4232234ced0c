"""What an exception means for the job: passing, permanent, or unexpected. Pure.

    PerseidError                            what it says
    a service or process that is lost       RetryableError, ProcessDied: tried as long as it takes
    everything else, of code or of data     UnexpectedError: a few tries at one epoch, then the end

In a task, `named` and `stage` give an exception its type where it is raised: there its class is
known, and where it was. What a task raised comes to the driver as text of Spark's, where `classify`
finds it by the token of `perseid.errors.carried`.
"""

from __future__ import annotations

import errno
import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from perseid.errors import PerseidError, ProcessDied, RetryableError, UnexpectedError
from perseid.errors.carried import describe, parse
from perseid.errors.texts import QUOTED_MAX, cut, kind_of
from perseid.errors.texts import named as quoted
from perseid.records.redaction import masked

if TYPE_CHECKING:
    from perseid.worker.context import FragmentContext

# Spark's words, which has no class for it: of a Python worker, and of an executor on another host.
DIED = ("Python worker exited unexpectedly", "ExecutorLostFailure")
# Of a Python exception's classes, ours and other libraries': what was asked does not answer.
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
# Of the JVM: its disk, its network, its memory, or somebody has ended what ran.
_LOST_IN_JVM = re.compile(
    r"\bjava\.(?:io|net|nio\.\w+)\.(?!NotSerial|Invalid)\w+(?:Exception|Error)\b|\bFetchFailed|\bTimeoutException\b"
    r"|\bjava\.lang\.(?:OutOfMemoryError|InterruptedException)\b|\bTaskKilled|\bTaskResultLost\b"
    r"|SparkContext was shut ?down|stopped SparkContext|\bJob \d+ cancelled"
)
_MASKED_MAX = 4 * QUOTED_MAX  # characters of a text that are looked at
_DEPTH_MAX = 20  # of causes
_FRAMES_MAX = 8  # that are shown, the last ones
_OF_PYTHON = "Traceback (most recent call last)"

P = ParamSpec("P")
T = TypeVar("T")


def is_lost(error: BaseException) -> bool:
    """Whether it, or what it came from, is about a service or a resource that is away for now."""
    return any(map(_is_lost, _chain(error)))


def _is_lost(one: BaseException) -> bool:
    if isinstance(one, BaseExceptionGroup):
        return all(map(is_lost, one.exceptions))
    named = any(c.__name__ in _LOST for c in type(one).__mro__)
    return named or (isinstance(one, OSError) and one.errno in _LOST_NUMBERS)


def typed(error: BaseException, where: str) -> PerseidError:
    """`error` as one of the tree; `where` says what raised it.

    Of a text that is not ours, what may be a value of a record is masked.
    """
    if isinstance(error, PerseidError):
        return error
    says = cut(masked(quoted(error)[:_MASKED_MAX]), QUOTED_MAX)
    told = f"{where} raised {says}\n{_frames(error)}"
    return RetryableError(told) if is_lost(error) else UnexpectedError(told)


@contextmanager
def named(where: str) -> Iterator[None]:
    """What the block raises says `where`, if it is no error of ours."""
    try:
        yield
    except (PerseidError, GeneratorExit):
        raise
    except BaseException as error:
        raise typed(error, where) from None


def stage(
    work: Callable[Concatenate[FragmentContext, P], Iterator[T]],
) -> Callable[Concatenate[FragmentContext, P], Iterator[T]]:
    """`work` of a Spark task; what it raises gets a form that the driver finds in Spark's text.

    All of it: Spark cannot carry a text that is no UTF-8, and would say that the process died.
    """

    @wraps(work)
    def run(context: FragmentContext, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        try:
            yield from work(context, *args, **kwargs)
        except GeneratorExit:  # nobody wants the rest
            raise
        except BaseException as error:
            told = typed(error, f"a task ({work.__name__})")
            raise RuntimeError(describe(told, context.token)) from None

    return run


def classify(error: BaseException, token: str) -> PerseidError:
    """What ended a fragment, as the driver sees it. `token`: the context's."""
    if isinstance(error, PerseidError):
        return error
    told = quoted(error)
    found = parse(told, token)
    if found is not None:
        return found
    text = cut(told)
    if _OF_PYTHON in told:  # raised outside of `stage`: by Spark's own part of a task
        return UnexpectedError(text)
    if any(words in told for words in DIED):
        return ProcessDied(
            "a process that computed the epoch has died: it crashed in native code, or was killed, "
            f"by the kernel perhaps (its log says whether for memory): {text}"
        )
    if is_lost(error) or kind_of(error) == "Py4JError" or _LOST_IN_JVM.search(told):
        return RetryableError(text)
    return UnexpectedError(text)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    for _ in range(_DEPTH_MAX):
        if error is None:
            return
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _frames(error: BaseException) -> str:
    """Where in the code it came from: places alone, without what stands there."""
    found = traceback.extract_tb(error.__traceback__)[-_FRAMES_MAX:]
    return "".join(f"  {f.filename}:{f.lineno} in {f.name}\n" for f in found)
