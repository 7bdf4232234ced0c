"""The calls of the API. Each does what a command of the CLI does, by the same function.

Calls store a request and do not wait for its result (the CLI's --no-wait): GET the job to see the
result. No call has a body. Only the CLI applies jobs, because that imports their operators and the
leader must not run code of jobs. `remove --purge` is also left to it, because it waits.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path as Folder
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from prometheus_client.exposition import choose_encoder
from pydantic import BaseModel, ConfigDict, Field

from perseid.coordinator import rebalance_requests, view
from perseid.coordinator.api import answers, metrics
from perseid.coordinator.api.audits import add_audits
from perseid.coordinator.api.guard import Guard
from perseid.coordinator.api.http_errors import RETRY_AFTER_S, Refusal
from perseid.coordinator.api.tokens import Role
from perseid.jobs.following import asking
from perseid.jobs.operations import verbs
from perseid.jobs.operations.applying import Cluster
from perseid.jobs.validation.document import NAME
from perseid.records import LeaderInfo
from perseid.topics.admin import TopicReader
from perseid.topics.log import LogReader

_ERRORS = {
    HTTPStatus.UNAUTHORIZED: "no token, or one that is not known",
    HTTPStatus.FORBIDDEN: "the token's role is too low",
    HTTPStatus.NOT_FOUND: "there is no such job or audit",
    HTTPStatus.CONFLICT: "the job's state does not allow it, and the message has the reason",
    HTTPStatus.UNPROCESSABLE_ENTITY: "a name or parameter is not what it has to be",
    HTTPStatus.TOO_MANY_REQUESTS: "too many calls of one token",
    HTTPStatus.SERVICE_UNAVAILABLE: "this coordinator does not lead, or a part does not answer",
}
_ALWAYS = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS)
_LED = (*_ALWAYS, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.SERVICE_UNAVAILABLE)
_OF_JOB = (*_LED, HTTPStatus.NOT_FOUND)
_CHANGING = (*_OF_JOB, HTTPStatus.CONFLICT)

Job = Annotated[str, Path(pattern=NAME, description="name of an applied job")]


class StartQuery(BaseModel):
    """Query of a start. A wrong parameter name is an error: it might have been `from`."""

    model_config = ConfigDict(extra="forbid")
    origin: str = Field(
        "checkpoint", alias="from", pattern=r"^(checkpoint|scratch|[0-9][0-9TWZ:., +-]{3,40})$",
        description="`checkpoint` resumes where the job was; `scratch` and an ISO time from 1970 "
        "on throw its state away and read from the sources' start, or from then",
    )  # fmt: skip


class StopQuery(BaseModel):
    """Query of a stop; a wrong parameter name is an error."""

    model_config = ConfigDict(extra="forbid")
    checkpoint: bool = Field(False, description="take a checkpoint first")


class RebalanceQuery(BaseModel):
    """Query of a rebalance; a wrong parameter name is an error."""

    model_config = ConfigDict(extra="forbid")
    job: str | None = Field(None, pattern=NAME, description="only fragments of this job")


@dataclass(frozen=True, slots=True)
class Backend:
    """What the calls work with. `look` returns None while this coordinator is in standby.

    `new_logs` creates a reader for one call; job archives are unpacked in `cache`.
    """

    look: Callable[[], view.Look | None]
    leader: Callable[[], LeaderInfo | None]
    cluster: Cluster
    topics: TopicReader
    new_logs: Callable[[], LogReader]
    cache: Folder

    def led(self) -> view.Look:
        """What the leader knows; Refusal with the leader's URL if this process does not lead."""
        look = self.look()
        if look is not None:
            return look
        leader = self.leader()
        where = f"ask {leader.url}" if leader is not None else "none leads now, try again"
        raise Refusal(
            HTTPStatus.SERVICE_UNAVAILABLE, "NotLeading",
            f"this coordinator does not lead: {where}",
            headers={"Retry-After": str(RETRY_AFTER_S)},
            leader=leader.url if leader is not None else None,
        )  # fmt: skip


def make_router(back: Backend, guard: Guard) -> APIRouter:
    """All calls, each with the role that it needs."""
    router = APIRouter()
    _add_process(router, back, guard)
    _add_reading(router, back, guard)
    _add_changing(router, back, guard)
    _add_repository(router, back, guard)
    add_audits(router, back, guard, {
        "reading": _responses(_LED), "of_one": _responses(_OF_JOB),
        "changing": _responses(_CHANGING),
    })  # fmt: skip
    return router


def _add_process(router: APIRouter, back: Backend, guard: Guard) -> None:
    registry = metrics.registry(back.look)

    @router.get("/healthz", tags=["process"])
    def health() -> answers.Health:
        """200 as long as this process lives. Needs no token."""
        return answers.Health(ok=True, leader=back.look() is not None)

    @router.get(
        "/metrics", tags=["process"], response_class=Response, responses=_responses(_ALWAYS)
        | {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
        dependencies=[Depends(guard.needs(Role.VIEWER))],
    )  # fmt: skip
    def scrape(request: Request) -> Response:
        """Metrics for Prometheus, in the text format that it asks for."""
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), media_type=content_type)


def _add_reading(router: APIRouter, back: Backend, guard: Guard) -> None:
    may = [Depends(guard.needs(Role.VIEWER)), Depends(back.led)]
    tags: list[Any] = ["viewer"]

    @router.get("/api/v1/status", tags=tags, responses=_responses(_LED), dependencies=may,
                response_model=answers.Status)  # fmt: skip
    def status() -> dict[str, Any]:
        """Workers, jobs, lag, checkpoints and rates, as the leader sees them now."""
        look = back.led()
        return view.status(look.state, look.leader, look.now)

    @router.get("/api/v1/jobs", tags=tags, responses=_responses(_LED), dependencies=may,
                response_model=answers.Jobs)  # fmt: skip
    def jobs() -> dict[str, Any]:
        """The applied jobs: `perseid jobs list`."""
        return {"jobs": verbs.every(back.cluster.registry)}

    @router.get("/api/v1/jobs/{job}", tags=tags, responses=_responses(_OF_JOB), dependencies=may,
                response_model=answers.JobDetails)  # fmt: skip
    def show(job: Job) -> dict[str, Any]:
        """One job with its checkpoints, its last error and its job file: `perseid jobs show`."""
        shown, fault = verbs.show(back.cluster, job, back.cache)
        return {**shown, "spec_error": fault}

    @router.get("/api/v1/jobs/{job}/checkpoints", tags=tags, responses=_responses(_OF_JOB),
                dependencies=may, response_model=answers.Checkpoints)  # fmt: skip
    def checkpoints(job: Job) -> dict[str, Any]:
        """The complete checkpoints of a job, the newest first."""
        return {"job": job, "checkpoints": verbs.checkpoints(back.cluster.registry, job)}


def _add_changing(router: APIRouter, back: Backend, guard: Guard) -> None:
    operator = [Depends(guard.needs(Role.OPERATOR)), Depends(back.led)]
    admin = [Depends(guard.needs(Role.ADMIN)), Depends(back.led)]
    settings: dict[str, Any] = {
        "responses": _responses(_CHANGING), "status_code": HTTPStatus.ACCEPTED,
    }  # fmt: skip

    @router.post("/api/v1/jobs/{job}/start", tags=["operator"], dependencies=operator,
                 response_model=answers.Asked, **settings)  # fmt: skip
    def start(job: Job, query: Annotated[StartQuery, Query()], request: Request) -> dict[str, Any]:
        """Start a stopped or failed job: `perseid jobs start JOB --from FROM --no-wait`."""
        known = query.origin in ("checkpoint", "scratch")
        request.state.details = f"from {query.origin if known else 'a time'}"
        return verbs.start(back.cluster, job, query.origin, None)

    @router.post("/api/v1/jobs/{job}/stop", tags=["operator"], dependencies=operator,
                 response_model=answers.Asked, **settings)  # fmt: skip
    def stop(job: Job, query: Annotated[StopQuery, Query()]) -> dict[str, Any]:
        """Stop a job after its current epoch: `perseid jobs stop JOB --no-wait`."""
        return verbs.stop(back.cluster, job, None, checkpoint=query.checkpoint)

    @router.post("/api/v1/jobs/{job}/checkpoint", tags=["operator"], dependencies=operator,
                 response_model=answers.CheckpointAsked, **settings)  # fmt: skip
    def checkpoint(job: Job) -> dict[str, Any]:
        """Take a checkpoint of a running job now: `perseid checkpoint JOB --no-wait`."""
        with closing(back.new_logs()) as logs:
            return verbs.checkpoint(back.cluster, back.topics, logs, job, None)

    @router.post("/api/v1/rebalance", tags=["operator"], dependencies=operator,
                 response_model=answers.Rebalance, **settings)  # fmt: skip
    def rebalance(query: Annotated[RebalanceQuery, Query()], request: Request) -> dict[str, Any]:
        """Move fragments to workers that have too few: `perseid rebalance JOB --no-wait`."""
        request.state.details = f"of {query.job or 'all jobs'}"
        return rebalance_requests.rebalance(back.cluster, query.job, back.cache, None)

    @router.delete("/api/v1/jobs/{job}", tags=["admin"], dependencies=admin,
                   response_model=answers.Removal, **settings)  # fmt: skip
    def remove(job: Job) -> dict[str, Any]:
        """Remove a job; its topics and checkpoints stay: `perseid jobs remove JOB --no-wait`."""
        return verbs.remove(back.cluster, job, None)


def _add_repository(router: APIRouter, back: Backend, guard: Guard) -> None:
    registry = back.cluster.registry

    @router.get("/api/v1/repository", tags=["viewer"], responses=_responses(_CHANGING),
                dependencies=[Depends(guard.needs(Role.VIEWER)), Depends(back.led)],
                response_model=answers.Repository)  # fmt: skip
    def repository() -> dict[str, Any]:
        """The result of the last look at the followed repository; 409 if none is followed."""
        return asking.show(registry, back.cluster.clock.wall_ms())

    @router.post("/api/v1/repository/look", tags=["operator"], responses=_responses(_CHANGING),
                 dependencies=[Depends(guard.needs(Role.OPERATOR)), Depends(back.led)],
                 status_code=HTTPStatus.ACCEPTED, response_model=answers.LookAsked)  # fmt: skip
    def look() -> dict[str, Any]:
        """Make `perseid follow` look at its repository now, as after a push."""
        return asking.look(registry)


def _responses(statuses: tuple[HTTPStatus, ...]) -> dict[int | str, dict[str, Any]]:
    """The errors of a call, for the OpenAPI document."""
    return {
        int(s): {"model": answers.Problem, "description": text}
        for s, text in _ERRORS.items()
        if s in statuses
    }
