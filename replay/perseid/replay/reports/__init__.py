"""The forms of an audit's report, each a pure function from the audit to a text, and their files.

Every form is made from `findings.Audit` alone, so none has a fact that another lacks.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

from perseid.errors import UsageError
from perseid.replay.findings import Audit
from perseid.replay.reports.html_form import as_html
from perseid.replay.reports.json_form import as_json, from_json
from perseid.replay.reports.junit import as_junit
from perseid.replay.reports.markdown import as_markdown
from perseid.replay.reports.values import redacted

__all__ = [
    "FORMS", "as_html", "as_json", "as_junit", "as_markdown", "from_json", "without_values",
    "write",
]  # fmt: skip


class Form(NamedTuple):
    """A form's file, and the function that makes its text."""

    file: str
    text: Callable[[Audit], str]


FORMS = {
    "json": Form("audit.json", as_json),
    "html": Form("audit.html", as_html),
    "junit": Form("audit.junit.xml", as_junit),
    "markdown": Form("audit.md", as_markdown),
}


def without_values(audit: Audit) -> Audit:
    """`audit` with tags for keys and values, which compare within this report alone."""
    return redacted(audit, secrets.token_bytes(16))


def write(
    audit: Audit, folder: Path, forms: Collection[str], show_values: bool = False
) -> list[Path]:
    """Writes the forms of the report into `folder`; returns their paths, in the order of FORMS.

    Keys and values of records are redacted, the same in all forms, unless `show_values`. Files of
    an earlier audit are replaced. Raises UsageError for an unknown form, and for a folder that
    cannot be written.
    """
    unknown = sorted(set(forms) - FORMS.keys())
    if unknown:
        raise UsageError(f"{unknown[0]!r} is no form of a report; expected {', '.join(FORMS)}")
    shown = audit if show_values else without_values(audit)
    texts = {FORMS[name].file: FORMS[name].text(shown) for name in FORMS if name in forms}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [_replaced(folder / name, text) for name, text in texts.items()]
    except OSError as error:
        raise UsageError(
            f"the reports cannot be written to {folder}: {type(error).__name__}: {error}"
        ) from None


def _replaced(path: Path, text: str) -> Path:
    """Replaces the file, so that no reader finds half of it."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_bytes(text.encode("utf-8", "backslashreplace"))
    return fresh.replace(path)
