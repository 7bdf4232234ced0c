"""Which repository is followed, and how: settings of a deployment, never of a job."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from perseid.errors import UsageError
from perseid.jobs.model import units
from perseid.jobs.repository import git

LOGIN = "PERSEID_JOBS_REPO_AUTH"  # "user:password", in the follower's environment alone
EVERY_S_MIN = 1.0  # each look is a request to a server that others use, too
_FOLDER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class Settings:
    """What to follow. `folder` within the repository; `signers` an allowed-signers file of ssh."""

    url: str
    ref: str
    folder: str = ""
    interval_s: float = 60.0
    signers: Path | None = None
    prune: bool = False
    access: git.Access = field(default_factory=git.Access)


def settings(
    url: str, ref: str, *, folder: str = "", every: str = "60s", signers: Path | None = None,
    prune: bool = False, insecure: bool = False, login: str | None = None,
) -> Settings:  # fmt: skip
    """The checked settings; UsageError with what to write. No message shows a login.

    `insecure` also allows file:// and http:// to this machine, for tests.
    """
    protocols = ("https", "ssh", "http", "file") if insecure else ("https", "ssh")
    _check_url(url, insecure=insecure)
    git.check_revision(ref)
    if folder and not _FOLDER.fullmatch(folder):
        raise UsageError(f"--folder {folder[:80]!r}: expected a path inside the repository: a/b")
    try:
        interval_s = units.seconds(every)
    except ValueError as error:
        raise UsageError(f"--every {every[:40]!r}: expected {error}") from None
    if interval_s < EVERY_S_MIN:
        raise UsageError(f"--every {every}: expected {EVERY_S_MIN:g}s at least")
    if signers is not None and not signers.is_file():
        raise UsageError(
            f"--signers {signers}: is no file; write one line a key into it, MAIL "
            'namespaces="git" ssh-ed25519 AAAA... (see `man ssh-keygen`, ALLOWED SIGNERS)'
        )
    if login is not None and (":" not in login or not login.isprintable()):
        raise UsageError(f"{LOGIN}: expected user:password, on one line")
    access = git.Access(protocols, login)
    absolute = signers.resolve() if signers is not None else None
    return Settings(url, ref, folder, interval_s, absolute, prune, access)


def _check_url(url: str, *, insecure: bool) -> None:
    try:
        parts = urlsplit(url)
        password, user = parts.password, parts.username
    except ValueError:
        raise UsageError("--repo: is no address; write https://HOST/PATH.git") from None
    if password is not None or (user is not None and parts.scheme != "ssh"):
        raise UsageError(
            f"--repo {git.hidden(url)}: has a user or password in it, which others could see; put "
            f"them into {LOGIN}=user:password in the follower's environment"
        )
    if parts.query or parts.fragment:
        raise UsageError(f"--repo {url[:120]}: has more than host and path; leave the rest out")
    if insecure and (
        parts.scheme == "file" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
    ):
        return
    if not git.is_url(url):
        raise UsageError(f"--repo {url[:120]!r}: is no address; write https://HOST/PATH.git")
