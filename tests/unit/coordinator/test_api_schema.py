"""The API against its own OpenAPI document, by Schemathesis: no call ends in a defect.

Calls that fit the document and calls that do not, with the name of a job and with any text in its
place. Statuses, headers and bodies of the answers must be as documented; what does not fit must be
refused; who has no token must not get in. The examples are the same in every run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, assume, given, settings
from schemathesis import Case, GenerationMode
from schemathesis.schemas import BaseSchema
from schemathesis.specs.openapi.checks import positive_data_acceptance

from perseid.coordinator.api.tokens import Role
from support.served import AUDIT, JOB, Served

# What the API takes for a boolean. Of another type in the document it is the same text in a query.
BOOLEANS = {"true", "false", "1", "0", "t", "f", "y", "n", "yes", "no", "on", "off"}
EXAMPLES = 20  # of each call, mode and kind of name; the whole takes a few seconds
CALLS = [
    ("GET", "/healthz"),
    ("GET", "/metrics"),
    ("GET", "/api/v1/status"),
    ("GET", "/api/v1/jobs"),
    ("GET", "/api/v1/jobs/{job}"),
    ("GET", "/api/v1/jobs/{job}/checkpoints"),
    ("POST", "/api/v1/jobs/{job}/start"),
    ("POST", "/api/v1/jobs/{job}/stop"),
    ("POST", "/api/v1/jobs/{job}/checkpoint"),
    ("POST", "/api/v1/rebalance"),
    ("DELETE", "/api/v1/jobs/{job}"),
    ("POST", "/api/v1/jobs/{job}/audits"),
    ("GET", "/api/v1/audits"),
    ("GET", "/api/v1/audits/{audit}"),
    ("GET", "/api/v1/audits/{audit}/report"),
    ("DELETE", "/api/v1/audits/{audit}"),
    ("GET", "/api/v1/repository"),
    ("POST", "/api/v1/repository/look"),
]
FIXED = [(*call, {"job": JOB}) for call in CALLS if "{job}" in call[1]]
FIXED += [(*call, {"audit": AUDIT}) for call in CALLS if "{audit}" in call[1]]
ANY: list[tuple[str, str, dict[str, str]]] = [(*call, {}) for call in CALLS]


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return Served(tmp_path)


@pytest.fixture
def schema(served: Served) -> BaseSchema:
    found: BaseSchema = schemathesis.openapi.from_asgi("/openapi.json", served.app)
    return found


def test_every_call_of_the_document_is_called(schema: BaseSchema) -> None:
    calls = {(m.upper(), path) for path, methods in schema.items() for m in methods}
    assert calls == set(CALLS)


@pytest.mark.parametrize(("method", "path", "fixed"), [*ANY, *FIXED])
def test_what_fits_the_document(
    method: str, path: str, fixed: dict[str, str], served: Served, schema: BaseSchema
) -> None:
    call(served, schema, method, path, fixed, GenerationMode.POSITIVE)


@pytest.mark.parametrize(
    ("method", "path", "fixed"),
    [c for c in ANY if "{job}" in c[1] or "{audit}" in c[1]]
    + [c for c in FIXED if c[1].endswith(("start", "stop"))],
)
def test_what_does_not_fit_the_document(
    method: str, path: str, fixed: dict[str, str], served: Served, schema: BaseSchema
) -> None:
    call(served, schema, method, path, fixed, GenerationMode.NEGATIVE)


def call(
    served: Served, schema: BaseSchema, method: str, path: str, fixed: dict[str, str],
    mode: GenerationMode,
) -> None:  # fmt: skip
    """Many times, on the job as it was each time."""
    entry = served.entry()
    headers = {"Authorization": f"Bearer {served.secrets[Role.ADMIN]}"}

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(schema[path][method].as_strategy(mode, path_parameters=fixed or None))
    def one(case: Case[Any]) -> None:
        if mode is GenerationMode.NEGATIVE:
            assume(str((case.query or {}).get("checkpoint")).lower() not in BOOLEANS)
        served.put_entry(entry)
        served.put_audit(ended=True)
        # A name that fits need not be a job's (404), and a job that runs is not started (409).
        case.call_and_validate(headers=headers, excluded_checks=[positive_data_acceptance])

    one()
