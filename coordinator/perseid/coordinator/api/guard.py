"""Admits requests: checks the caller, the call rate and the role.

Without tokens the API listens on loopback only, and every process on this machine may do
everything. But a browser on this machine also sends requests for pages from any origin. So such a
request must name a loopback host (DNS rebinding names another one) and must not come from a page of
another origin.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Annotated
from urllib.parse import SplitResult, urlsplit

from fastapi import Request, Response, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.datastructures import Headers
from starlette.middleware.base import RequestResponseEndpoint

from perseid.coordinator.api.http_errors import RETRY_AFTER_S, Refusal, answer
from perseid.coordinator.api.limits import BODY_BYTES_MAX, RateLimit
from perseid.coordinator.api.listening import is_loopback
from perseid.coordinator.api.tokens import Principal, Role, TokenFile
from perseid.errors import UsageError
from perseid.jobs.validation.document import NAME

_log = logging.getLogger(__name__)

LOCAL = Principal("local", Role.ADMIN)  # any local caller while there are no tokens
STRANGER = ""  # counts calls without a valid token
_LOOKING = frozenset({"GET", "HEAD", "OPTIONS"})
_DENIED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_BEARER = HTTPBearer(
    auto_error=False, description="A token that `perseid tokens new` has printed. None is needed "
    "on loopback while the coordinator has no token file.",
)  # fmt: skip
Admit = Callable[..., Awaitable[Principal]]


class Guard:
    """Decides on requests one by one; only for the server's event loop."""

    def __init__(self, tokens: TokenFile | None, limit: RateLimit) -> None:
        self._tokens, self._limit = tokens, limit
        self._logged_fault = ""

    def needs(self, role: Role) -> Admit:
        """A dependency that admits principals of at least this role."""

        async def admit(
            request: Request,
            given: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)],
        ) -> Principal:
            secret = given.credentials if given is not None else None
            principal = self.identified(
                secret, request.headers.get("host", ""), request.headers.get("origin")
            )
            request.state.principal, request.state.role = principal.name, principal.role
            self._limited(principal.name)
            check_role(principal, role)
            return principal

        return admit

    def identified(self, secret: str | None, host: str, origin: str | None) -> Principal:
        """The principal of the request; raises Refusal if there is none."""
        if self._tokens is None:
            fault = _local_fault(host, origin)
            if fault is not None:
                self._limited(STRANGER)
                raise Refusal(HTTPStatus.FORBIDDEN, "Forbidden", fault)
            return LOCAL
        if secret is None:
            self._limited(STRANGER)
            raise _unauthorized("no token was given")
        try:
            principal = self._tokens.principal(secret)
        except UsageError as error:
            self._log_fault(str(error))
            raise Refusal(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "UsageError",
                "this coordinator cannot use its token file; its log has the reason",
                headers={"Retry-After": str(RETRY_AFTER_S)},
            ) from None
        self._log_fault("")
        if principal is None:
            self._limited(STRANGER)
            raise _unauthorized("the token is none that this coordinator knows")
        return principal

    def _limited(self, name: str) -> None:
        wait_s = self._limit.wait_s(name)
        if wait_s > 0:
            raise Refusal(
                HTTPStatus.TOO_MANY_REQUESTS, "TooManyRequests",
                f"more than {self._limit.rate.per_s:g} calls a second; try again in {wait_s:.2f} s",
                headers={"Retry-After": str(max(1, round(wait_s)))},
            )  # fmt: skip

    def _log_fault(self, fault: str) -> None:
        """Logs a fault of the token file once, not for each request."""
        if fault and fault != self._logged_fault:
            _log.error("every request is refused: %s", fault)
        self._logged_fault = fault


def caller(request: Request) -> Principal:
    """Who makes an admitted request."""
    return Principal(request.state.principal, request.state.role)


def check_role(principal: Principal, role: Role) -> None:
    """Raises Refusal for a lower role."""
    if principal.role < role:
        raise Refusal(
            HTTPStatus.FORBIDDEN, "Forbidden",
            f"{principal.name} has the role {principal.role.word}, and this call needs "
            f"{role.word}: ask for a token with that role",
        )  # fmt: skip


def _unauthorized(what: str) -> Refusal:
    return Refusal(
        HTTPStatus.UNAUTHORIZED, "Unauthorized",
        f"{what}: send the header `Authorization: Bearer TOKEN`; who runs this coordinator makes a "
        "token with `perseid tokens new NAME --role viewer --file FILE`",
        headers={"WWW-Authenticate": "Bearer"},
    )  # fmt: skip


def _local_fault(host: str, origin: str | None) -> str | None:
    """Why a browser may have sent the request for a page of another origin; None if it did not."""
    if not is_loopback(_split(f"//{host}").hostname or ""):
        return (
            "the Host header names no loopback address: use http://127.0.0.1:PORT, or give the "
            "coordinator a token file with --api-tokens"
        )
    if origin is not None and _split(origin).netloc != host:
        return (
            "a page of another origin has sent this; give the coordinator a token file with "
            "--api-tokens, and send a token"
        )
    return None


def _split(url: str) -> SplitResult:
    """The parts of an address; empty parts for an invalid one, such as `//[`."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")


async def checked_and_logged(request: Request, call_next: RequestResponseEndpoint) -> Response:
    """Middleware: refuses large bodies, and logs calls that may change something, with the result.

    Only validated names are logged, neither headers nor the raw path. Calls with a refused body, of
    strangers beyond their rate, or to unknown paths, are not logged.
    """
    refusal = _body_refusal(request.headers)
    if refusal is not None:
        return answer(refusal)
    if request.method in _LOOKING:
        return await call_next(request)
    status: int | None = None
    try:
        response = await call_next(request)
        status = response.status_code
        return response
    finally:
        who = getattr(request.state, "principal", None)
        if who is not None or status in _DENIED:
            _log.info("%s asks: %s, answered with %s", who or "unknown", _what(request), status)


def _body_refusal(headers: Headers) -> Refusal | None:
    if "transfer-encoding" in headers:
        return Refusal(HTTPStatus.LENGTH_REQUIRED, "UsageError",
                       "a body needs a Content-Length; no call of this API has a body")  # fmt: skip
    length = headers.get("content-length", "0")
    if not re.fullmatch("[0-9]{1,20}", length) or int(length) > BODY_BYTES_MAX:
        return Refusal(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "UsageError",
            f"a body has at most {BODY_BYTES_MAX} bytes; no call of this API has a body",
        )  # fmt: skip
    return None


def _what(request: Request) -> str:
    path = getattr(request.scope.get("route"), "path", "an unknown path")
    job = str(request.path_params.get("job", ""))
    method = request.method if re.fullmatch("[A-Z]{1,10}", request.method) else "a method"
    named = f" of job {job}" if re.fullmatch(NAME, job) else ""
    details = getattr(request.state, "details", "")
    return f"{method} {path}{named}{f' ({details})' if details else ''}"
