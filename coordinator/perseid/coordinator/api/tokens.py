"""Who may do what: principals with a role, identified by the SHA-256 of their token.

A token file has one line for each token, `name role sha256-hex`; empty lines and lines that begin
with # are skipped. No file of perseid contains the token itself: `perseid tokens new` prints it
once. A token has 256 random bits, so a fast hash is as safe as a slow one.

The file is read again when it changes. While it cannot be read no request is admitted, because the
last valid version could contain a token that was just revoked.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from perseid.errors import UsageError
from perseid.state.durability.files import write_file

PREFIX = "perseid_"  # lets scanners for leaked secrets find tokens, and is no job's name
SECRET_BYTES = 32
FILE_BYTES_MAX = 1 << 20  # ten thousand tokens
FORM = "NAME viewer|operator|admin SHA256-HEX"
NAME_FORM = "1 to 63 of a-z A-Z 0-9 . _ @ - (a letter or digit first)"
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._@-]{0,62}")
_HASH = re.compile(r"[0-9a-f]{64}")


class Role(IntEnum):
    """Each role may do what the ones before it may."""

    VIEWER = 1  # look
    OPERATOR = 2  # start, stop, checkpoint
    ADMIN = 3  # remove

    @property
    def word(self) -> str:
        return self.name.lower()


ROLES = {role.word: role for role in Role}


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller of a request."""

    name: str
    role: Role


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a token file."""

    principal: Principal
    sha256: str

    def __str__(self) -> str:
        return f"{self.principal.name} {self.principal.role.word} {self.sha256}"


def hashed(secret: str) -> str:
    """The SHA-256 of a token, in hexadecimal digits."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def parsed(text: str, label: str) -> tuple[Entry, ...]:
    """The entries of a token file; UsageError names the first bad line without quoting it.

    A bad line may contain a token in plain text.
    """
    found: dict[str, Entry] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        fault = _fault(words)
        if fault is None and words[0] in found:
            fault = "has a name that an earlier line has"
        if fault is not None:
            raise UsageError(
                f"{label}:{number}: {fault}; expected `{FORM}`, as `perseid tokens new` writes it"
            )
        found[words[0]] = Entry(Principal(words[0], ROLES[words[1]]), words[2])
    return tuple(found.values())


def _fault(words: Sequence[str]) -> str | None:
    if len(words) != 3:
        return f"has {len(words)} words instead of 3"
    if not _NAME.fullmatch(words[0]):
        return f"has a name that is not of {NAME_FORM}"
    if words[1] not in ROLES:
        return "has no role as its second word"
    if not _HASH.fullmatch(words[2]):
        return "has no SHA-256 of 64 lower-case hexadecimal digits as its third word"
    return None


def principal_of(entries: Sequence[Entry], secret: str) -> Principal | None:
    """The token's principal, if any. The time taken does not depend on the token."""
    given, found = hashed(secret), None
    for entry in entries:
        if hmac.compare_digest(entry.sha256, given):
            found = entry.principal
    return found


class TokenFile:
    """The tokens of a file, read again when the file changes."""

    def __init__(self, path: Path) -> None:
        """Raises UsageError when the file cannot be used."""
        self._path = path
        self._read: tuple[tuple[int, ...], tuple[Entry, ...]] | None = None
        self.entries()

    def principal(self, secret: str) -> Principal | None:
        """The token's principal, if any. Raises UsageError if the file can no longer be used."""
        return principal_of(self.entries(), secret)

    def entries(self) -> tuple[Entry, ...]:
        try:
            mark = _mark(os.stat(self._path))
            if self._read is None or self._read[0] != mark:
                self._read = mark, parsed(_text(self._path), str(self._path))
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"the token file {self._path} cannot be read: {type(error).__name__}; "
                "`perseid tokens new NAME --role ROLE --file FILE` makes one"
            ) from None
        return self._read[1]


def added(path: Path, name: str, role: Role, *, dry_run: bool = False) -> str | None:
    """Adds a new token to a file, which may not exist yet, and returns the token.

    A rename replaces the file, so that a coordinator never reads half of it. Raises UsageError if
    the name is taken or invalid, or the file is no token file. With `dry_run` no token is made and
    nothing is written.
    """
    try:
        text = _text(path) if path.exists() else ""
        _check_new(name, parsed(text, str(path)), path)
        secret = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
        text += "\n" * (bool(text) and not text.endswith("\n"))
        if dry_run:
            return None
        _replaced(path, f"{text}{Entry(Principal(name, role), hashed(secret))}\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--file {path}: {type(error).__name__}: {error}") from None
    return secret


def first(folder: Path, wanted: Mapping[str, Role]) -> Path:
    """Makes the token file of a new deployment, FOLDER/tokens, and FOLDER/NAME.token for each name.

    Idempotent: existing files stay. The token file is written last, so that a kill leaves nothing
    that looks finished. Other users who can read the folder may read a viewer's token, such as a
    Prometheus under its own user. Raises UsageError if a name is invalid or the folder cannot be
    written.
    """
    path = folder / "tokens"
    try:
        if path.exists():
            TokenFile(path)  # reports a damaged one here, not in each coordinator
            return path
        folder.mkdir(parents=True, exist_ok=True)
        lines = ""
        for name, role in wanted.items():
            _check_new(name, parsed(lines, str(path)), path)
            secret = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
            own = folder / f"{name}.token"
            _replaced(own, secret)
            own.chmod(0o644 if role is Role.VIEWER else 0o600)
            lines += f"{Entry(Principal(name, role), hashed(secret))}\n"
        _replaced(path, lines)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{folder}: {type(error).__name__}: {error}") from None
    return path


def _check_new(name: str, entries: Sequence[Entry], path: Path) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name[:80]!r}: expected a name of {NAME_FORM}")
    if any(entry.principal.name == name for entry in entries):
        raise UsageError(
            f"{path}: {name} has a token already; take another name, or delete its line first"
        )


def _replaced(path: Path, text: str) -> None:
    """Replaces the file: it keeps its mode; a new one is readable by its owner only."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    write_file(str(fresh), [text.encode()], sync=True, mode=0o600)
    if path.exists():
        shutil.copymode(path, fresh)
    fresh.replace(path)


def _text(path: Path) -> str:
    if path.stat().st_size > FILE_BYTES_MAX:
        raise UsageError(f"{path}: is larger than {FILE_BYTES_MAX} bytes, so no token file")
    return path.read_text(encoding="utf-8")


def _mark(status: os.stat_result) -> tuple[int, ...]:
    """What changes when a file is written or replaced."""
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
