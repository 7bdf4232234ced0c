"""Two deployments with one Kafka must not have a job of the same name: its topics and ids are one.

They would fence each other for ever. Each knows the job by another UUID, which the token log says:
so who comes second, and finds that tokens are being issued, does not begin; and who was there first
and finds the chain begun anew by another UUID does not go on.
"""

from __future__ import annotations

from collections.abc import Iterable

from perseid.errors import PermanentError
from perseid.topics import names
from perseid.topics.records import Begin, Token, TokenRecord

ALIVE_MS = 60_000  # an idle job has a token every ten seconds


def last_of_another(
    job_uuid: str, records: Iterable[tuple[int, TokenRecord]]
) -> tuple[int, Token] | None:
    """The last token of a token log, and its offset, if a job of another UUID goes on with it.

    A Begin alone is of a job that nobody ran: perhaps one of our own that was removed since.
    """
    found = None
    for offset, record in records:
        if isinstance(record, Begin):
            found = None
        elif isinstance(record, Token):
            found = offset, record
    return found if found is not None and found[1].job_uuid != job_uuid else None


def in_use(job: str, job_uuid: str, offset: int, found: Token) -> PermanentError:
    """For the job that has never run here, while another one of its name runs elsewhere."""
    return PermanentError(
        f"{names.tokens(job)} is in use: job UUID {found.job_uuid} has a token of epoch "
        f"{found.epoch} at offset {offset}, less than {ALIVE_MS // 1000} s old, and job {job} "
        f"here is {job_uuid} and has never run: another deployment runs a job {job} on this "
        f"Kafka; {_remedy(job)}. If there is none any more, wait a minute and type `perseid jobs "
        f"start {job}`"
    )


def taken_over(job: str, job_uuid: str, found_uuid: str) -> PermanentError:
    """For the job that has run here, when its token chain is another one's by now."""
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
