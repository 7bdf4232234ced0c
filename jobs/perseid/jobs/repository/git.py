"""Runs the `git` command so that a repository's content is read and never executed.

Nothing is checked out: commits are read by `ls-tree` and `cat-file`, so there are no hooks, no
filters (LFS), no submodules and no symbolic links on disk. A local repository is read with only its
own configuration and without a network; a URL must be https or ssh and is fetched into an empty
bare repository. Messages contain no user or password of an address.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from perseid.errors import BadInputError, RefusedError, RetryableError, UsageError

FETCH_TIMEOUT_S = 120.0
READ_TIMEOUT_S = 30.0
FETCHED_BYTES_MAX = 1 << 30  # limit of a file that git may write for a server's data
_REVISION = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9._/-]{0,199}\Z")
_COMMIT = re.compile(r"^[0-9a-f]{40}([0-9a-f]{24})?\Z")
_SCP = re.compile(r"^[A-Za-z0-9._-]+@[A-Za-z0-9.-]+:(?!/?/)[^\s]+\Z")
_LOGIN = re.compile(r"(?<=://)[^/@\s]+@")
_SAFE = (
    "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "protocol.allow=never",
    "-c", "submodule.recurse=false", "-c", "fetch.fsckObjects=true", "-c", "safe.directory=*",
    "-c", "fetch.recurseSubmodules=false", "-c", "core.pager=cat", "-c", "gc.auto=0",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Access:
    """How addresses are reached. `login`: "user:password" for a server that requires one."""

    protocols: tuple[str, ...] = ("https", "ssh")
    login: str | None = field(default=None, repr=False)


class GitFailed(BadInputError):
    """A git command failed; the attribute `stderr` is its error output."""

    def __init__(self, message: str, stderr: str = "") -> None:
        self.stderr = stderr
        super().__init__(message, stderr)


@dataclass(frozen=True, slots=True)
class Blob:
    """One entry of a commit's tree; `mode` is git's (120000 a link, 160000 a submodule)."""

    mode: str
    id: str
    bytes: int
    path: str


def check_revision(revision: str) -> str:
    """`revision`, or UsageError when it is no name or commit id (`HEAD~1`, `-x`, `a..b`)."""
    if not _REVISION.match(revision) or ".." in revision:
        raise UsageError(
            f"revision {revision[:80]!r}: expected a commit id, a branch or a tag; "
            "write REPO@COMMIT"
        )
    return revision


def is_commit(text: str) -> bool:
    """Whether `text` is a whole commit id."""
    return _COMMIT.match(text) is not None


def is_url(repo: str) -> bool:
    """Whether `repo` is an address; RefusedError for an unsupported kind of address."""
    looks_like = "://" in repo or "::" in repo or bool(_SCP.match(repo))
    if not looks_like:
        return False
    if repo.startswith(("https://", "ssh://")) and "::" not in repo and not re.search(r"\s", repo):
        return True
    if _SCP.match(repo) and "::" not in repo:
        return True
    raise RefusedError(
        f"{hidden(repo)[:120]!r}: only https:// and ssh:// addresses are fetched; clone the "
        "repository yourself and write its path"
    )


def repository_of(folder: Path) -> tuple[Path, str] | None:
    """The repository that holds `folder`, and the folder's path in it; None outside of one."""
    if (folder / "HEAD").is_file() and (folder / "objects").is_dir():
        return folder, ""  # bare
    try:
        found = run(folder, ["rev-parse", "--show-toplevel", "--show-prefix"]).decode()
    except BadInputError:
        return None
    top, prefix = found.split("\n")[:2]
    return Path(top), prefix.rstrip("/")


def commit_of(repository: Path, revision: str) -> str:
    """The commit id of a revision."""
    check_revision(revision)
    try:
        out = run(repository, ["rev-parse", "--verify", "--quiet", "--end-of-options",
                               f"{revision}^{{commit}}"])  # fmt: skip
    except BadInputError:
        raise UsageError(
            f"{repository}: has no commit {revision!r}; `git -C {repository} log` shows what it has"
        ) from None
    return out.decode().strip()


def entries(repository: Path, commit: str, prefix: str) -> Iterator[Blob]:
    """All files of the commit below `prefix`, with paths relative to it."""
    arguments = ["ls-tree", "-r", "-z", "-l", "--full-tree", commit]
    out = run(repository, [*arguments, "--", f"{prefix}/"] if prefix else arguments)
    for line in out.split(b"\0"):
        if line:
            head, _, path = line.partition(b"\t")
            mode, _, blob, size = head.decode().split()
            name = path.decode("utf-8", "backslashreplace")
            yield Blob(mode, blob, int(size) if size != "-" else 0, name[len(prefix) :].lstrip("/"))


def contents(repository: Path, blobs: Sequence[Blob]) -> list[bytes]:
    """The contents of the entries, in order."""
    out = run(repository, ["cat-file", "--batch"], "".join(f"{b.id}\n" for b in blobs).encode())
    found, at = [], 0
    for _ in blobs:
        end = out.index(b"\n", at)
        size = int(out[at:end].split()[2])
        found.append(out[end + 1 : end + 1 + size])
        at = end + 2 + size
    return found


@contextmanager
def fetched(url: str, revision: str | None) -> Iterator[tuple[Path, str]]:
    """A temporary bare repository with the revision (or the default branch), and its commit."""
    wanted = check_revision(revision) if revision else "HEAD"
    with TemporaryDirectory(prefix="perseid-git-") as folder:
        repository = Path(folder)
        run(repository, ["init", "--quiet", "--bare", "--template="])
        common = ["fetch", "--quiet", "--no-tags", "--no-recurse-submodules"]
        try:
            _fetch(repository, [*common, "--depth=1", "--end-of-options", url, wanted])
            commit = commit_of(repository, "FETCH_HEAD")
        except RetryableError:
            # Only some servers give single commits, and only by full id: fetch everything.
            refs = ["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"]
            _fetch(repository, [*common, "--end-of-options", url, *refs])
            commit = commit_of(repository, wanted)
        if revision and is_commit(revision) and commit != revision:
            raise BadInputError(f"{hidden(url)}: gave commit {commit} for {revision}")
        yield repository, commit


def _fetch(repository: Path, arguments: Sequence[str]) -> None:
    try:
        run(repository, arguments, access=Access())
    except BadInputError as error:
        raise RetryableError(str(error)) from None


def hidden(text: str) -> str:
    """`text` without the users and passwords of addresses."""
    return _LOGIN.sub("", text)


def run(
    folder: Path, arguments: Sequence[str], stdin: bytes = b"", *, access: Access | None = None,
    url: str = "",
) -> bytes:  # fmt: skip
    """Output of git in `folder`; without `access` it reaches no network.

    `url`: the address of the login of `access`, which is sent to no other server.

    Raises:
        GitFailed: with the first line of git's error output.
        RetryableError: it takes too long.
    """
    login = _login(url, access.login) if access is not None and access.login else ()
    try:
        with _file_limit() if access is not None else nullcontext():
            done = subprocess.run(
                ["git", *_SAFE, *login, "-C", str(folder), *arguments], input=stdin,
                capture_output=True, env=_environment(access), check=False,
                timeout=READ_TIMEOUT_S if access is None else FETCH_TIMEOUT_S,
            )  # fmt: skip
    except FileNotFoundError:
        raise UsageError("there is no git command; install git, or give a folder") from None
    except subprocess.TimeoutExpired:
        raise RetryableError(f"git {arguments[0]} took too long; try again") from None
    if done.returncode != 0:
        stderr = hidden(done.stderr.decode("utf-8", "replace")).strip()
        first = stderr.splitlines()[0][:300] if stderr else "no reason"
        raise GitFailed(f"git {arguments[0]} failed: {first}", stderr)
    return done.stdout


@contextmanager
def _file_limit() -> Iterator[None]:
    """Processes that are started meanwhile write no file above FETCHED_BYTES_MAX."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    limits = [n for n in (soft, FETCHED_BYTES_MAX) if n != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_FSIZE, (min(limits), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def _environment(access: Access | None) -> dict[str, str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    environment |= {"GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1", "LC_ALL": "C",
                    "GIT_CONFIG_NOSYSTEM": "1", "GIT_OPTIONAL_LOCKS": "0"}  # fmt: skip
    if access is None:
        # The user's own configuration is for fetching (credentials, certificates) only.
        return environment | {"GIT_ALLOW_PROTOCOL": "none", "GIT_CONFIG_GLOBAL": os.devnull}
    environment["GIT_ALLOW_PROTOCOL"] = ":".join(access.protocols)
    if access.login:
        user, _, password = access.login.partition(":")
        environment |= {"PERSEID_GIT_USER": user, "PERSEID_GIT_PASSWORD": password}
    return environment


def _login(url: str, login: str) -> tuple[str, ...]:
    """Options that give git a login for this server alone, by environment, not by arguments."""
    if not login.isprintable():
        raise UsageError("the login of a git repository has control characters in it")
    parts = urlsplit(url)
    note = 'printf "username=%s\\npassword=%s\\n" "$PERSEID_GIT_USER" "$PERSEID_GIT_PASSWORD"'
    helper = f'!f() {{ test "$1" = get && {note}; }}; f'
    return ("-c", f"credential.{parts.scheme}://{parts.netloc}.helper={helper}")
