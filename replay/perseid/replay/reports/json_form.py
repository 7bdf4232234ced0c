"""The JSON form: the audit's fields as they are, bytes in base64 (RFC 4648, padded). Pure."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from perseid.errors import BadInputError
from perseid.errors.texts import cut
from perseid.replay.findings import FORMAT, Audit

# pydantic takes settings for a list of dataclasses, and refuses them for a dataclass itself.
_AUDITS = TypeAdapter(
    list[Audit],
    config=ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, val_json_bytes="base64"),
)
_FAULTS_MAX = 3  # that an error names


def as_json(audit: Audit) -> str:
    """`audit` as one JSON object, one field a line; the same audit gives the same text."""
    return json.dumps(asdict(audit), default=_base64, indent=1, allow_nan=False) + "\n"


def from_json(text: str) -> Audit:
    """The audit of `as_json`. Raises BadInputError: no report, or one of another format."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInputError(
            f"no report of an audit: expected one JSON object: {cut(str(error), 200)}"
        ) from None
    number = found.get("format") if isinstance(found, dict) else None
    if type(number) is not int:
        raise BadInputError(
            "no report of an audit: expected a JSON object with the number `format`, as "
            "`perseid replay` writes it"
        )
    if number != FORMAT:
        raise BadInputError(
            f"the report has format {number}, and this perseid reads format {FORMAT}; read it with "
            "the version of perseid that its field `version` names"
        )
    try:
        return _AUDITS.validate_json(f"[{text}]")[0]
    except ValidationError as error:
        raise BadInputError(
            f"a report of format {FORMAT} that is damaged: {_faults(error)}"
        ) from None


def _faults(error: ValidationError) -> str:
    """Where the report is not what the format has, without the values there."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    places = [
        f"{'.'.join(map(str, fault['loc'][1:])) or 'the report'}: {fault['msg']}"
        for fault in faults[:_FAULTS_MAX]
    ]
    more = len(faults) - len(places)
    return cut("; ".join(places), 1000) + (f"; and {more} more" if more else "")


def _base64(value: Any) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"a report has no {type(value).__name__}")
