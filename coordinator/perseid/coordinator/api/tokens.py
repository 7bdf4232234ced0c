"""Who may do what: principals with a role, known by the SHA-256 of their token.

A token file has one line a token, `name role sha256-hex`; empty lines and lines that begin with #
are skipped. The token itself is in no file of perseid: `perseid tokens new` prints it once. It has
256 bits of chance, so a plain hash is as good as a slow one.

The file is read again when it changes. One that cannot be read lets nobody in: the last good one
could hold a token that was just taken out.
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

PREFIX = "perseid_"  # scanners for leaked secrets can know it, and it is no job's name
SECRET_BYTES = 32
FILE_BYTES_MAX = 1 << 20  # ten thousand tokens
FORM = "NAME viewer|operator|admin SHA256-HEX"
NAME_FORM = "1 to 63 of a-z A-Z 0-9 . _ @ - (a letter or digit first)"
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._@-]{0,62}")
_HASH = re.compile(r"[0-9a-f]{64}")


class Role(IntEnum):
    """Each may do what the ones below it may."""

    VIEWER = 1  # look
    OPERATOR = 2  # start, stop, checkpoint
    ADMIN = 3  # remove

    @property
    def word(self) -> str:
        return self.name.lower()


ROLES = {role.word: role for role in Role}


@dataclass(frozen=True, slots=True)
class Principal:
    """Who a request comes from."""

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
    """The entries of a token file; UsageError names the first bad line, and quotes none of it.

    What stands in a bad line may be a token that somebody put there as it is.
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
    """Whose token it is. Takes as long whoever it is, and whether it is anybody's."""
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
        """Whose token it is. Raises UsageError when the file cannot be used any more."""
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
    """Adds a new token to a file that may not be there yet, and returns the token.

    The file is replaced by rename, so that a coordinator never reads half of it. Raises UsageError
    when the name is taken or is none, or the file is no token file. With `dry_run` there is no
    token, and nothing is written.
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

    Harmless when repeated: what is there stays. The token file is written last, so that a kill
    leaves nothing that looks finished. A viewer's token may be read by others who see the folder,
    as a Prometheus under its own user. Raises UsageError when a name is none or the folder cannot
    be written.
    """
    path = folder / "tokens"
    try:
        if path.exists():
            TokenFile(path)  # a damaged one is said now and not by each coordinator
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
    """Who could read the file still can; a new one is for its owner alone."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
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
