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
