"""The path of each entry (contracts.md, ZooKeeper), relative to the deployment's root."""

from __future__ import annotations

import re

from perseid.errors import UsageError

EPOCH = "/epoch"  # the fence: its version guards every write of the leader
LEADER = "/leader"  # ephemeral, of the leading coordinator
COORDINATORS = "/coordinators"  # one ephemeral child per life of a coordinator
WORKERS = "/workers"  # one ephemeral child per worker incarnation
DEPLOYMENT = "/deployment"  # a random id, which distinguishes deployments with one checkpoint store
JOBS = "/jobs"
PROTOCOL = "/protocol"  # of the deployment's data, see `versions`
CHANGED = "/changed"  # set by every write of a spec or a plan, so that one watch covers them all
REPOSITORY = "/repository"  # what the last check of the config repository found
LOOK_ASKED = "/repository-look"  # set to request a check now; its version counts the requests
FOLLOWER = "/follower"  # ephemeral, of the process that follows the repository
AUDITS = "/audits"  # one child per audit; set by every write that opens, takes or ends one

_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def part(name: str) -> str:
    """`name` as one step of a path; UsageError for a name that could reach another node."""
    if not _PART.fullmatch(name):
        raise UsageError(f"{name!r} cannot be a node name: expected letters, digits, '.', '_', '-'")
    return name


def coordinator(id_: str, pid: int) -> str:
    return f"{COORDINATORS}/{part(f'{id_}-{pid}')}"


def worker(incarnation: str) -> str:
    return f"{WORKERS}/{part(incarnation)}"


def audit(id_: str) -> str:
    return f"{AUDITS}/{part(id_)}"


def job(name: str) -> str:
    return f"{JOBS}/{part(name)}"


def spec(name: str) -> str:
    return f"{job(name)}/spec"


def generation(name: str) -> str:
    """Survives `jobs remove`: a job applied again continues above it."""
    return f"{job(name)}/generation"


def plan(name: str) -> str:
    return f"{job(name)}/plan"


def checkpoint(name: str) -> str:
    return f"{job(name)}/checkpoint"


def backups(name: str) -> str:
    return f"{job(name)}/backups"


def failures(name: str) -> str:
    return f"{job(name)}/failures"


def status(name: str) -> str:
    return f"{job(name)}/status"
