"""A revision of a job, as the coordinator knows it."""

from __future__ import annotations

from dataclasses import dataclass

from perseid.jobs.model.spec import JobSpec


@dataclass(frozen=True, slots=True)
class Program:
    """One validated revision of a job, from its archive."""

    revision: str
    archive: str
    spec: JobSpec
    upstream_fingerprint: str = ""  # `change.upstream_fingerprint`, if a failed epoch must be ended
    code: str = ""  # `change.code` of it, likewise
