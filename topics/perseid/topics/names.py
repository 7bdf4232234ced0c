"""Names of topics, transactional ids and consumer groups (contracts.md, Topics)."""

from __future__ import annotations

import re

from perseid.errors import UsageError

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def check_topic(name: str) -> str:
    """Returns `name`; UsageError if Kafka does not accept it or reserves it."""
    if not _TOPIC.fullmatch(name) or name in {".", ".."} or name.startswith("__"):
        raise UsageError(
            f"topic name {name!r} is not valid: expected 1 to 249 of A-Z a-z 0-9 . _ - and no "
            "leading '__'; choose another name"
        )
    return name


def tokens(job: str) -> str:
    return f"perseid.{job}.tokens"


def progress(job: str) -> str:
    return f"perseid.{job}.progress"


def ledger(job: str) -> str:
    return f"perseid.{job}.ledger"


def buffers(job: str) -> str:
    """What the names of a job's buffer topics begin with."""
    return f"perseid.{job}.buffer."


def buffer(job: str, operator: str, layout: int) -> str:
    """The topic of rows for the partitions of `operator` from other fragments."""
    return f"{buffers(job)}{operator}.{layout}"


def of_buffer(job: str, topic: str) -> tuple[str, int] | None:
    """Operator and layout of a job's buffer topic; None for another topic.

    >>> of_buffer("shop", "perseid.shop.buffer.totals.3")
    ('totals', 3)
    """
    operator, _, layout = topic.removeprefix(buffers(job)).rpartition(".")
    if not topic.startswith(buffers(job)) or not operator or not layout.isdecimal():
        return None
    return operator, int(layout)


def redriven(job: str) -> str:
    """The topic that records which dead letters were redriven."""
    return f"perseid.{job}.redriven"


def redrive_id(job: str) -> str:
    """The transactional id of `dlq redrive`."""
    return f"perseid.{job}.redrive"


def group(job: str) -> str:
    """The consumer group that mirrors a job's progress in its sources."""
    return f"perseid.{job}"


def group_id(job: str) -> str:
    """The transactional id of that mirror's writer, the leading coordinator."""
    return f"perseid.{job}.offsets"


def transactional_id(job: str, layout: int, operator: str, partition: int) -> str:
    return f"perseid.{job}.{layout}.{operator}.{partition}"
