"""Errors as HTTP answers: one shape for all, and a status that names who has to act.

- 400 to 429, the caller: correct the request, get a token, check the job's state, or retry later
- 503, no action: this coordinator does not lead, or a service that it needs does not answer
- 500: a defect of perseid, or damaged data; the log has the traceback
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from perseid.coordinator.api.answers import ErrorText, Problem
from perseid.errors import PerseidError, RefusedError, RetryableError, UsageError
from perseid.jobs.operations.audits import UnknownAudit
from perseid.jobs.operations.steering import UnknownJob

_log = logging.getLogger(__name__)

RETRY_AFTER_S = 1

# The first match counts. Other permanent errors come from stored data, not from the call.
_STATUS: tuple[tuple[type[PerseidError], HTTPStatus], ...] = (
    (UnknownJob, HTTPStatus.NOT_FOUND),
    (UnknownAudit, HTTPStatus.NOT_FOUND),
    (UsageError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (RefusedError, HTTPStatus.CONFLICT),
    (RetryableError, HTTPStatus.SERVICE_UNAVAILABLE),
)


class Refusal(Exception):
    """A request that is not admitted. `leader`: URL of the coordinator that would accept it."""

    def __init__(
        self, status: HTTPStatus, kind: str, message: str, *,
        headers: Mapping[str, str] | None = None, leader: str | None = None,
    ) -> None:  # fmt: skip
        self.status, self.kind, self.message = status, kind, message
        self.headers, self.leader = dict(headers or {}), leader
        super().__init__(message)


def answer(refusal: Refusal) -> JSONResponse:
    """The refusal as the caller sees it."""
    text = ErrorText(kind=refusal.kind, message=refusal.message, leader=refusal.leader)
    return JSONResponse(
        Problem(error=text).model_dump(), status_code=refusal.status, headers=refusal.headers
    )


def refusal_of(error: PerseidError) -> Refusal:
    """The refusal that answers an error of perseid."""
    status = next(
        (s for kind, s in _STATUS if isinstance(error, kind)), HTTPStatus.INTERNAL_SERVER_ERROR
    )
    headers = {}
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = str(RETRY_AFTER_S)
    return Refusal(status, type(error).__name__, str(error), headers=headers)


def install(app: FastAPI) -> None:
    """Makes every error of the app a Problem."""

    @app.exception_handler(Refusal)
    async def refused(_: Request, error: Refusal) -> JSONResponse:
        return answer(error)

    @app.exception_handler(PerseidError)
    async def failed(_: Request, error: PerseidError) -> JSONResponse:
        refusal = refusal_of(error)
        if refusal.status == HTTPStatus.INTERNAL_SERVER_ERROR:
            _log.error("a request failed", exc_info=error)
        return answer(refusal)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        return answer(Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, "UsageError", _faults(error)))

    @app.exception_handler(HTTPException)
    async def unknown(_: Request, error: HTTPException) -> JSONResponse:
        text = f"{error.detail}; /openapi.json has the calls that there are"
        status = HTTPStatus(error.status_code)
        return answer(Refusal(status, "UsageError", text, headers=error.headers))

    @app.exception_handler(Exception)
    async def defect(_: Request, error: Exception) -> JSONResponse:
        # The server logs the traceback: this handler's caller raises the error again.
        text = f"a defect of perseid ({type(error).__name__}); the coordinator's log has more"
        return answer(Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "Defect", text))


def _faults(error: RequestValidationError) -> str:
    """Where the fault is and what was expected; the caller's value is not repeated."""
    return "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
