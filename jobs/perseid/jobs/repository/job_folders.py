"""Finds the job folders of a REPO[@REV] argument.

- `jobs/`: a folder with job.yaml, or of such folders, as it is now
- `jobs/@4f2a91c`: the same at a commit of the git repository that holds it
- `https://host/jobs.git@main`: a repository by address
- `example:wordcount`: a job that comes with perseid
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from perseid.errors import BadInputError, UsageError
from perseid.jobs.model.problems import JobFileErrors, JobFileRefused, Problem, listed, nearest
from perseid.jobs.model.spec import JobSpec
from perseid.jobs.model.trees import (
    FILE_BYTES_MAX,
    FILES_MAX,
    JOB_FILE,
    TREE_BYTES_MAX,
    JobTree,
    check_files,
    folder_tree,
    kept,
    unpack,
)
from perseid.jobs.repository import git
from perseid.jobs.validation import parse

__all__ = ["JobTree", "Location", "Validated", "example", "examples", "find", "locate",
           "validated"]  # fmt: skip

JOBS_MAX = 200
LFS_POINTER = b"version https://git-lfs.github.com/spec/"
EXAMPLES = Path(__file__).parents[1] / "examples"


@dataclass(frozen=True, slots=True)
class Location:
    """A parsed REPO[@REV]."""

    repo: str
    revision: str | None
    url: bool


@dataclass(frozen=True, slots=True)
class Validated:
    """A job folder and the job in it. `folder` is a copy of the tree, valid inside the `with`."""

    tree: JobTree
    spec: JobSpec
    folder: Path


def locate(text: str) -> Location:
    """The parts of REPO[@REV]; an '@' in the host part of an address does not count."""
    if text.startswith("-") or not text or "\0" in text:
        raise UsageError(f"{text[:80]!r}: expected a folder, a repository or example:NAME")
    if not Path(text).exists():
        start = 0
        if "://" in text:
            start = max(text.find("/", text.index("://") + 3), 0)
        elif git.is_url(text):
            start = text.index(":")
        at = text.rfind("@")
        if at > start or (at > 0 and start == 0):
            repo = text[:at]
            return Location(repo, git.check_revision(text[at + 1 :]), git.is_url(repo))
    return Location(text, None, not Path(text).exists() and git.is_url(text))


def find(text: str) -> list[JobTree]:
    """The job folders at REPO[@REV], by name."""
    if text.startswith("example:"):
        return [folder_tree(example(text[8:]), text[8:])]
    where = locate(text)
    if where.url:
        with git.fetched(where.repo, where.revision) as (repository, commit):
            return _commit_trees(repository, commit, "", where.repo)
    folder = Path(where.repo)
    if not folder.is_dir():
        raise UsageError(
            f"{git.hidden(where.repo)}: is no folder; write a folder with {JOB_FILE}, a git "
            f"repository, or one of {', '.join('example:' + e for e in examples())}"
        )
    if where.revision is None and not (folder / "objects").is_dir():
        return _folder_trees(folder)
    found = git.repository_of(folder)
    if found is None:
        raise UsageError(f"{where.repo}: is in no git repository, so it has no @{where.revision}")
    repository, prefix = found
    commit = git.commit_of(repository, where.revision or "HEAD")
    return _commit_trees(repository, commit, prefix, where.repo)


def examples() -> list[str]:
    """Names of the jobs that come with perseid."""
    return sorted(p.parent.name for p in EXAMPLES.glob(f"*/{JOB_FILE}"))


def example(name: str) -> Path:
    """The folder of an example."""
    if name not in examples():
        close = nearest(name, examples())
        raise UsageError(
            f"example:{name[:80]} does not exist; "
            + (f"write example:{close}" if close else f"there are {listed(examples())}")
        )
    return EXAMPLES / name


@contextmanager
def validated(trees: list[JobTree], label_folders: bool = True) -> Iterator[list[Validated]]:
    """Every tree with its job; reports all mistakes of all trees at once.

    Raises JobFileErrors or JobFileRefused. The folders exist inside the `with` only.
    """
    with tempfile.TemporaryDirectory(prefix="perseid-jobs-") as work:
        found: list[Validated] = []
        problems: list[Problem] = []
        for tree in trees:
            folder = Path(work) / tree.name
            unpack(tree.files, folder)
            try:
                label = f"{tree.name}/{JOB_FILE}" if label_folders else JOB_FILE
                found.append(Validated(tree, parse.load(folder, label), folder))
            except (JobFileErrors, JobFileRefused) as error:
                problems += error.problems
        problems += _same_names(found)
        if any(not p.refused for p in problems):
            raise JobFileErrors(problems)
        if problems:
            raise JobFileRefused(problems)
        yield found


def _same_names(found: list[Validated]) -> Iterator[Problem]:
    first: dict[str, str] = {}
    for job in found:
        other = first.setdefault(job.spec.name, job.tree.name)
        if other != job.tree.name:
            yield Problem(
                f"{job.tree.name}/{JOB_FILE}", 1,
                f"name: {job.spec.name!r} is the name of the job in {other}/ too; write another",
            )  # fmt: skip


def _folder_trees(folder: Path) -> list[JobTree]:
    if (folder / JOB_FILE).is_file():
        return [folder_tree(folder, _own_name(folder))]
    found = [p for p in sorted(folder.iterdir()) if kept(p.name) and (p / JOB_FILE).is_file()]
    _check_count(len(found), str(folder))
    return [folder_tree(p, p.name) for p in found]


def _own_name(folder: Path) -> str:
    return folder.resolve().name.removesuffix(".git") or "job"


def _check_count(count: int, where: str) -> None:
    if count == 0:
        raise UsageError(
            f"{where}: has no {JOB_FILE}, nor has a folder in it; type `perseid init DIR` for a "
            "first job"
        )
    if count > JOBS_MAX:
        raise BadInputError(f"{where}: has {count} jobs, expected {JOBS_MAX} at most")


def _commit_trees(repository: Path, commit: str, prefix: str, shown: str) -> list[JobTree]:
    trees = commit_trees(repository, commit, prefix, git.hidden(shown))
    faults = [tree for tree in trees.values() if isinstance(tree, BadInputError)]
    if faults:
        raise faults[0]
    return [tree for tree in trees.values() if isinstance(tree, JobTree)]


def commit_trees(
    repository: Path, commit: str, prefix: str, shown: str
) -> dict[str, JobTree | BadInputError]:
    """The job folders of a commit by name, or the error of one of them.

    `shown`: the repository's address, for messages; its last part names a job at the top.
    """
    blobs = [b for b in git.entries(repository, commit, prefix) if kept(b.path)]
    if any(b.path == JOB_FILE for b in blobs):
        own = (prefix or shown.rstrip("/").removesuffix(".git")).rpartition("/")[2] or "job"
        below = {own: ""}
    else:
        names = sorted({b.path.split("/")[0] for b in blobs
                        if b.path.count("/") == 1 and b.path.endswith(f"/{JOB_FILE}")})  # fmt: skip
        below = {name: f"{name}/" for name in names}
    _check_count(len(below), f"{shown}@{commit[:12]}")
    found: dict[str, JobTree | BadInputError] = {}
    for name, path in below.items():
        try:
            found[name] = _commit_tree(repository, commit, name, blobs, path)
        except BadInputError as error:
            found[name] = error
    return found


def _commit_tree(
    repository: Path, commit: str, name: str, blobs: list[git.Blob], below: str
) -> JobTree:
    own = [b for b in blobs if b.path.startswith(below)]
    for blob in own:
        kind = {"120000": "a symbolic link", "160000": "a submodule"}.get(blob.mode)
        if kind is not None:
            raise BadInputError(f"{blob.path}: is {kind}; put the file itself there")
        if blob.bytes > FILE_BYTES_MAX:
            raise BadInputError(f"{blob.path}: has {blob.bytes} bytes; data belongs in a topic")
    if len(own) > FILES_MAX or sum(b.bytes for b in own) > TREE_BYTES_MAX:
        raise BadInputError(f"{name}: is larger than {FILES_MAX} files or {TREE_BYTES_MAX} bytes")
    read = git.contents(repository, own)
    files = {b.path[len(below) :]: content for b, content in zip(own, read, strict=True)}
    for path, content in files.items():
        if content.startswith(LFS_POINTER):
            raise BadInputError(
                f"{name}/{path}: is kept in Git LFS, which is not fetched; commit the file itself "
                "(`git lfs untrack`, then add it again), or put the data into a topic"
            )
    check_files(name, files)
    return JobTree(name, files, commit)
