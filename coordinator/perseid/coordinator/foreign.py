"""Two deployments on one Kafka must not run a job of the same name: they share its topics and ids.

They would fence each other without limit. Each deployment knows the job by another UUID, and the
token log holds the UUID. A job that has never run here does not begin while tokens of another UUID
are being issued, and a job that has run here stops when another UUID has begun the chain again.

Clocks do not show whether tokens are being issued, since those of two hosts may differ by any time
and may be set meanwhile: for ALIVE_S the log is watched for further tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from perseid.errors import PermanentError, PerseidError, RetryableError
from perseid.topics import names
from perseid.topics.records import Begin, Token, TokenRecord

ALIVE_S = 60.0  # an idle job has a token every ten seconds


@dataclass(frozen=True, slots=True)
class Watched:
    """Another UUID's last token is the one at `offset`, as was first seen at `since_s`."""

    offset: int
    since_s: float


def last_of_another(
    job_uuid: str, records: Iterable[tuple[int, TokenRecord]]
) -> tuple[int, Token] | None:
    """The log's last token and its offset, if it belongs to a job of another UUID.

    A Begin without tokens belongs to a job that never ran, perhaps a removed one of this
    deployment.
    """
    found = None
    for offset, record in records:
        if isinstance(record, Begin):
            found = None
        elif isinstance(record, Token):
            found = offset, record
    return found if found is not None and found[1].job_uuid != job_uuid else None


def in_use(
    job: str, job_uuid: str, watched: Watched, last: tuple[int, Token], now_s: float
) -> PerseidError | None:
    """For the job that has never run here, under whose name another one was run.

    `last`: the other's last token now, and its offset. None: the other runs no more.
    """
    offset, found = last
    text = (
        f"job UUID {found.job_uuid} has a token of epoch {found.epoch} at offset {offset}, and job "
        f"{job} here is {job_uuid} and has never run"
    )
    if offset != watched.offset:
        return PermanentError(
            f"{names.tokens(job)} is in use: {text}; its last one was at offset {watched.offset} "
            f"{now_s - watched.since_s:.0f} s ago: another deployment runs a job {job} on this "
            f"Kafka; {_remedy(job)}. If there is none any more, type `perseid jobs start {job}`"
        )
    left_s = watched.since_s + ALIVE_S - now_s
    if left_s > 0:
        return RetryableError(
            f"{names.tokens(job)} may be in use: {text}; if no other token comes in {left_s:.0f} s "
            "it begins"
        )
    return None


def taken_over(job: str, job_uuid: str, found_uuid: str) -> PermanentError:
    """The error for a job that has run here, after another deployment took over its chain."""
    return PermanentError(
        f"{names.tokens(job)} was taken over by job UUID {found_uuid}, and job {job} here is "
        f"{job_uuid}: another deployment runs a job {job} on this Kafka; stop that one, and "
        f"{_remedy(job)}"
    )


def _remedy(job: str) -> str:
    return (
        f"give one of the two another `name:` in job.yaml and apply it (then `perseid jobs remove "
        f"{job}` here, without --purge: the topics are the other one's, too)"
    )
