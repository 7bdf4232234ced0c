"""Calls about audits that workers run: ask for one, list, show, cancel, read a report."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from perseid.coordinator.api import answers
from perseid.coordinator.api.guard import Guard, caller, check_role
from perseid.coordinator.api.tokens import Role
from perseid.jobs.operations import audits
from perseid.jobs.validation.document import NAME
from perseid.replay import reports, request, tolerances

if TYPE_CHECKING:
    from perseid.coordinator.api.routes import Backend

ID = r"^[a-z0-9][a-z0-9-]{0,79}$"
TYPES = {
    "json": "application/json", "html": "text/html; charset=utf-8",
    "junit": "application/xml", "markdown": "text/markdown; charset=utf-8",
}  # fmt: skip
_CONTENT = {
    kind.partition(";")[0]: {"schema": {"type": "object" if name == "json" else "string"}}
    for name, kind in TYPES.items()
}
# A report is of records that others wrote: a browser shows it without the rights of this address.
HEADERS = {
    "Content-Security-Policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
}
Id = Annotated[str, Path(pattern=ID, description="id of an audit")]
Text = Annotated[str | None, Field(max_length=300)]


class AuditQuery(BaseModel):
    """Query of a new audit: one range, as of `perseid replay`; a wrong name is an error."""

    model_config = ConfigDict(extra="forbid")
    epochs: Text = Field(None, description="FIRST:LAST, both included; FIRST: to the end")
    last: Text = Field(None, description="the last 1h, 30m, ...")
    from_: Text = Field(None, alias="from", description="epochs from this ISO time on")
    to: Text = Field(None, description="epochs before this ISO time")
    offsets: Text = Field(None, description="those that read TOPIC:PARTITION:FIRST-LAST")
    tolerance: list[Annotated[str, Field(max_length=300)]] = Field(
        default_factory=list, max_length=50,
        description="COLUMN=relative:1e-9, ulp:4 or absolute:0.01",
    )  # fmt: skip
    cores: int = Field(1, ge=1, le=64, description="of the worker, that it may use")

    def options(self) -> tuple[str, ...]:
        """The options of `perseid replay`; UsageError names the one that is wrong."""
        given = {
            "epochs": self.epochs, "from": self.from_, "to": self.to, "last": self.last,
            "offsets": self.offsets,
        }  # fmt: skip
        request.parsed(
            epochs=self.epochs, from_=self.from_, to=self.to, last=self.last, offsets=self.offsets
        )
        tolerances.of_options(self.tolerance)
        return audits.arguments(given, self.tolerance, self.cores)


class ListQuery(BaseModel):
    """Query of the list; a wrong parameter name is an error."""

    model_config = ConfigDict(extra="forbid")
    job: str | None = Field(None, pattern=NAME, description="only those of this job")


class ReportQuery(BaseModel):
    """Query of a report; a wrong parameter name is an error."""

    model_config = ConfigDict(extra="forbid")
    format: Literal["json", "html", "junit", "markdown"] = "json"
    values: bool = Field(
        False, description="with keys and values of records, which needs the role operator"
    )


def add_audits(router: APIRouter, back: Backend, guard: Guard, errors: dict[str, Any]) -> None:
    """The calls. `errors`: the documented errors of reading and of changing calls."""
    registry, clock = back.cluster.registry, back.cluster.clock
    led = Depends(back.led)
    viewer, operator = guard.needs(Role.VIEWER), guard.needs(Role.OPERATOR)
    may: dict[str, Any] = {"tags": ["viewer"], "dependencies": [Depends(viewer), led]}
    changes: dict[str, Any] = {
        "tags": ["operator"], "dependencies": [Depends(operator), led],
        "responses": errors["changing"], "status_code": HTTPStatus.ACCEPTED,
        "response_model": answers.Audit,
    }  # fmt: skip

    @router.post("/api/v1/jobs/{job}/audits", **changes)
    def ask(
        job: Annotated[str, Path(pattern=NAME, description="name of an applied job")],
        query: Annotated[AuditQuery, Query()],
        asked_by: Request,
    ) -> dict[str, Any]:
        """Run epochs of a job again on a worker: `perseid replay JOB --on-worker --no-wait`."""
        asked = audits.ask(registry, clock, job, query.options(), caller(asked_by).name)
        return audits.document(asked)

    @router.get("/api/v1/audits", responses=errors["reading"],
                response_model=answers.Audits, **may)  # fmt: skip
    def every(query: Annotated[ListQuery, Query()]) -> dict[str, Any]:
        """The audits that are open or kept, the newest first: `perseid audits list`."""
        return {"audits": [audits.document(one) for one in audits.every(registry, query.job)]}

    @router.get("/api/v1/audits/{audit}", responses=errors["of_one"],
                response_model=answers.Audit, **may)  # fmt: skip
    def show(audit: Id) -> dict[str, Any]:
        """One audit, with its progress or its verdict: `perseid audits show-run ID`."""
        return audits.document(audits.find(registry, audit).value)

    @router.get(
        "/api/v1/audits/{audit}/report", response_class=Response,
        responses=errors["changing"] | {200: {"content": _CONTENT}}, **may,
    )  # fmt: skip
    def report(audit: Id, query: Annotated[ReportQuery, Query()], asked_by: Request) -> Response:
        """The report, redacted or with values: `perseid audits show-run ID --format FORM`."""
        if query.values:
            check_role(caller(asked_by), Role.OPERATOR)
        found = audits.find(registry, audit).value
        text = audits.report(back.cluster.store, found, values=query.values)
        if query.format != "json":
            text = reports.FORMS[query.format].text(reports.from_json(text))
        return Response(
            text.encode("utf-8", "backslashreplace"), media_type=TYPES[query.format],
            headers=HEADERS,
        )  # fmt: skip

    @router.delete("/api/v1/audits/{audit}", **changes)
    def cancel(audit: Id, asked_by: Request) -> dict[str, Any]:
        """End an open audit: `perseid audits cancel ID`."""
        return audits.document(audits.cancel(registry, clock, audit, caller(asked_by).name))
