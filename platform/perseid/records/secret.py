"""Secrets of a deployment: in the environment, or in files that the environment names.

A file is better: `ps e` and crash reports do not show it, and it can be changed at run time. A
secret is passed to the one client that needs it and stored nowhere.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from perseid.errors import UsageError

SECRET_BYTES_MAX = 4096  # a longer file is no password, but a wrong path


def of_environment(variable: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """The content of the file that <variable>_FILE names, else the value of the variable."""
    file = f"{variable}_FILE"
    if environment.get(file):
        return of_file(environment[file], file)
    return environment.get(variable) or None


def of_file(path: str, setting: str) -> str:
    """The one line of the file; UsageError names setting and path, never the content."""
    if not path.startswith("/"):  # not quoted: it may be the secret itself, put in the wrong place
        raise UsageError(f"{setting}: expected the absolute path of a file that has the secret")
    try:
        content = Path(path).read_bytes()
        text = content.decode().rstrip("\r\n")
    except OSError as error:
        raise UsageError(f"{setting}: {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{setting}: {path} is no UTF-8 text") from None
    if not text or len(content) > SECRET_BYTES_MAX or not text.isprintable():
        raise UsageError(
            f"{setting}: {path} should hold a secret, one line of 1 to {SECRET_BYTES_MAX} bytes"
        )
    return text
