"""What an exception means for the job: transient, permanent, or unexpected. Pure.

    PerseidError                            its own type
    a service or process that is lost       RetryableError, ProcessDied: retried without limit
    everything else, of code or of data     UnexpectedError: a few attempts at one epoch, then stop

In a task, `named` and `stage` give an exception its type where it is raised: its class and place
are known there. The driver gets a task's error as a text of Spark's, in which `classify` finds it
by the token of `perseid.errors.carried`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from perseid.errors import (
    PerseidError,
    ProcessDied,
    RetryableError,
    UnexpectedError,
    untyped,
)
from perseid.errors.carried import describe, parse
from perseid.errors.texts import cut, kind_of
from perseid.errors.texts import named as quoted
from perseid.errors.untyped import is_lost
from perseid.records.redaction import masked

if TYPE_CHECKING:
    from perseid.worker.dataflow.context import FragmentContext

# Spark's texts, since it has no class for it: a lost Python worker, and a lost executor.
DIED = ("Python worker exited unexpectedly", "ExecutorLostFailure")
# Of the JVM: its disk, network, memory or processes failed, or its work was cancelled.
_LOST_IN_JVM = re.compile(
    r"\bjava\.(?:io|net|nio\.\w+)\.(?!NotSerial|Invalid)\w+(?:Exception|Error)\b"
    r"|\bjava\.lang\.(?:OutOfMemoryError|InterruptedException)\b|\bTimeoutException\b"
    r"|\bRejectedExecutionException\b|\bRpcEnvStoppedException\b|\bBlockNotFoundException\b"
    r"|\bFetchFailed|\bTaskKilled|\bTaskResultLost\b|\bJob \d+ cancelled|\bFailed to get broadcast_"
    r"|Python (?:daemon|worker) failed to (?:launch|connect)|for the Python worker to connect"
    r"|SparkContext was shut ?down|stopped SparkContext|Master removed our application"
    r"|All masters are unresponsive|CoarseGrainedScheduler|heartbeat timed out"
)
_OF_PYTHON = "Traceback (most recent call last)"

P = ParamSpec("P")
T = TypeVar("T")


def typed(error: BaseException, where: str) -> PerseidError:
    """`error` as a PerseidError; possible quotes of records are masked."""
    return untyped.typed(error, where, masked)


@contextmanager
def named(where: str) -> Iterator[None]:
    """Exceptions of the block that are not PerseidErrors get a type and `where` in the text."""
    try:
        yield
    except (PerseidError, GeneratorExit):
        raise
    except BaseException as error:
        raise typed(error, where) from None


def stage(
    work: Callable[Concatenate[FragmentContext, P], Iterator[T]],
) -> Callable[Concatenate[FragmentContext, P], Iterator[T]]:
    """`work` of a Spark task; its errors get a form that the driver finds in Spark's text.

    This holds for all errors: Spark cannot carry a text that is not UTF-8, and would report that
    the process died.
    """

    @wraps(work)
    def run(context: FragmentContext, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        try:
            yield from work(context, *args, **kwargs)
        except GeneratorExit:  # the rest is not wanted
            raise
        except BaseException as error:
            failure = typed(error, f"a task ({work.__name__})")
            raise RuntimeError(describe(failure, context.token)) from None

    return run


def classify(error: BaseException, token: str) -> PerseidError:
    """The error that ended a fragment, as the driver sees it. `token`: the context's."""
    if isinstance(error, PerseidError):
        return error
    message = quoted(error)
    found = parse(message, token)
    if found is not None:
        return found
    text = cut(message)
    if _OF_PYTHON in message:  # raised outside of `stage`, by Spark's own part of a task
        return UnexpectedError(text)
    if any(words in message for words in DIED):
        return ProcessDied(
            "a process that computed the epoch has died: it crashed in native code, or was killed, "
            f"by the kernel perhaps (its log has the reason): {text}"
        )
    if is_lost(error) or kind_of(error) == "Py4JError" or _LOST_IN_JVM.search(message):
        return RetryableError(text)
    return UnexpectedError(text)
