"""Reads reports of audits from files: plain or signed, with the error that a user needs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

NOT_VERIFIED = "signed, not verified"


def report_of(file: Path, keys: Sequence[Path]) -> tuple[str, str]:
    """The report in a file as JSON, and whether it is signed. `keys`: verify it with these."""
    from perseid.replay import signing

    text = text_of(file)
    if keys:
        found = signing.verify(text, [signing.public_key(path) for path in keys])
        return found.report, f"signed by key {found.key_id}"
    if _is_envelope(text):
        return signing.unverified(text), NOT_VERIFIED
    return text, "unsigned"


def _is_envelope(text: str) -> bool:
    from perseid.replay import signing

    try:
        return signing.is_envelope(json.loads(text))
    except (ValueError, RecursionError):
        return False  # reading it as a report names the fault


def text_of(file: Path) -> str:
    """UsageError where it cannot be read."""
    from perseid.errors import UsageError

    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file}: expected a report, found bytes that are no text") from None
