"""The `git` command, used so that a repository is read and never run.

Nothing is checked out: commits are read by `ls-tree` and `cat-file`, so there are no hooks, no
filters (LFS), no submodules and no symbolic links on disk. A local repository is read without any
configuration but its own and without a network; a URL must be https or ssh and is fetched into an
empty bare repository.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from perseid.errors import BadInputError, RefusedError, RetryableError, UsageError

FETCH_TIMEOUT_S = 120.0
READ_TIMEOUT_S = 30.0
_REVISION = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9._/-]{0,199}\Z")
_COMMIT = re.compile(r"^[0-9a-f]{40}([0-9a-f]{24})?\Z")
_SCP = re.compile(r"^[A-Za-z0-9._-]+@[A-Za-z0-9.-]+:(?!/?/)[^\s]+\Z")
_SAFE = (
    "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "protocol.allow=never",
    "-c", "protocol.https.allow=always", "-c", "protocol.ssh.allow=always",
    "-c", "submodule.recurse=false", "-c", "fetch.fsckObjects=true", "-c", "safe.directory=*",
    "-c", "fetch.recurseSubmodules=false", "-c", "core.pager=cat", "-c", "gc.auto=0",
)  # fmt: skip


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


def is_url(repo: str) -> bool:
    """Whether `repo` is an address; RefusedError for one of a kind that is not fetched."""
    looks_like = "://" in repo or "::" in repo or bool(_SCP.match(repo))
    if not looks_like:
        return False
    if repo.startswith(("https://", "ssh://")) and "::" not in repo and not re.search(r"\s", repo):
        return True
    if _SCP.match(repo) and "::" not in repo:
        return True
    raise RefusedError(
        f"{repo[:120]!r}: only https:// and ssh:// addresses are fetched; clone the repository "
        "yourself and write its path"
    )


def repository_of(folder: Path) -> tuple[Path, str] | None:
    """The repository that holds `folder`, and the folder's path in it; None outside of one."""
    if (folder / "HEAD").is_file() and (folder / "objects").is_dir():
        return folder, ""  # bare
    try:
        found = _run(folder, ["rev-parse", "--show-toplevel", "--show-prefix"]).decode()
    except BadInputError:
        return None
    top, prefix = found.split("\n")[:2]
    return Path(top), prefix.rstrip("/")


def commit_of(repository: Path, revision: str) -> str:
    """The commit id of a revision."""
    check_revision(revision)
    try:
        out = _run(repository, ["rev-parse", "--verify", "--quiet", "--end-of-options",
                                f"{revision}^{{commit}}"])  # fmt: skip
    except BadInputError:
        raise UsageError(
            f"{repository}: has no commit {revision!r}; `git -C {repository} log` shows what it has"
        ) from None
    return out.decode().strip()


def entries(repository: Path, commit: str, prefix: str) -> Iterator[Blob]:
    """All files of the commit below `prefix`, with paths relative to it."""
    arguments = ["ls-tree", "-r", "-z", "-l", "--full-tree", commit]
    out = _run(repository, [*arguments, "--", f"{prefix}/"] if prefix else arguments)
    for line in out.split(b"\0"):
        if line:
            head, _, path = line.partition(b"\t")
            mode, _, blob, size = head.decode().split()
            name = path.decode("utf-8", "backslashreplace")
            yield Blob(mode, blob, int(size) if size != "-" else 0, name[len(prefix):].lstrip("/"))


def contents(repository: Path, blobs: Sequence[Blob]) -> list[bytes]:
    """What the entries hold, in order."""
    out = _run(repository, ["cat-file", "--batch"], "".join(f"{b.id}\n" for b in blobs).encode())
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
        _run(repository, ["init", "--quiet", "--bare", "--template="])
        common = ["fetch", "--quiet", "--no-tags", "--no-recurse-submodules"]
        try:
            _fetch(repository, [*common, "--depth=1", "--end-of-options", url, wanted])
            commit = commit_of(repository, "FETCH_HEAD")
        except RetryableError:
            # Servers give single commits only by full id, and only some do: take everything.
            refs = ["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"]
            _fetch(repository, [*common, "--end-of-options", url, *refs])
            commit = commit_of(repository, wanted)
        if revision and _COMMIT.match(revision) and commit != revision:
            raise BadInputError(f"{url}: gave commit {commit} for {revision}")
        yield repository, commit


def _fetch(repository: Path, arguments: Sequence[str]) -> None:
    try:
        _run(repository, arguments, network=True)
    except BadInputError as error:
        raise RetryableError(str(error)) from None


def _run(
    folder: Path, arguments: Sequence[str], stdin: bytes = b"", *, network: bool = False
) -> bytes:
    """Output of git in `folder`; BadInputError with the first line of what it says otherwise."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    environment |= {"GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1", "LC_ALL": "C",
                    "GIT_CONFIG_NOSYSTEM": "1", "GIT_OPTIONAL_LOCKS": "0"}  # fmt: skip
    if network:
        environment |= {"GIT_ALLOW_PROTOCOL": "https:ssh"}
    else:
        # The user's own configuration is for fetching (credentials, certificates) only.
        environment |= {"GIT_ALLOW_PROTOCOL": "none", "GIT_CONFIG_GLOBAL": os.devnull}
    try:
        done = subprocess.run(
            ["git", *_SAFE, "-C", str(folder), *arguments], input=stdin, capture_output=True,
            env=environment, timeout=FETCH_TIMEOUT_S if network else READ_TIMEOUT_S, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        raise UsageError("there is no git command; install git, or give a folder") from None
    except subprocess.TimeoutExpired:
        raise RetryableError(f"git {arguments[0]} took too long; try again") from None
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise BadInputError(f"git {arguments[0]} failed: {said[0][:300] if said else 'no reason'}")
    return done.stdout
