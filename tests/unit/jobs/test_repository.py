"""REPO[@REV]: folders, git commits, archives; nothing of a repository is run."""

from __future__ import annotations

import os
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from perseid.errors import BadInputError, DamagedFile, RefusedError, RetryableError, UsageError
from perseid.jobs.model import trees
from perseid.jobs.model.problems import JobFileErrors, JobFileRefused
from perseid.jobs.repository import git, job_folders
from perseid.state.durability.store import LocalStore

JOB = """\
name: {name}
sources: {{x: {{topic: x, format: text}}}}
sinks: {{s: {{input: x, topic: {name}-out, format: text}}}}
"""


def put(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "job.yaml").write_text(JOB.format(name=name))
    (folder / "m.py").write_text("X = 1\n")
    return folder


def run_git(folder: Path, *arguments: str) -> str:
    settings = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", *settings, "-C", str(folder), *arguments], check=True, capture_output=True,
        env={**os.environ, "GIT_CONFIG_GLOBAL": os.devnull},
    )  # fmt: skip
    return done.stdout.decode().strip()


def commit(folder: Path) -> str:
    if not (folder / ".git").exists():
        run_git(folder, "init", "--quiet", "--initial-branch=main")
    run_git(folder, "add", "--all")
    run_git(folder, "commit", "--quiet", "--message=x")
    return run_git(folder, "rev-parse", "HEAD")


def test_a_job_folder_and_a_folder_of_jobs(tmp_path: Path) -> None:
    put(tmp_path / "a", "aa")
    put(tmp_path / "b", "bb")
    (tmp_path / "docs").mkdir()
    (tmp_path / ".hidden").mkdir()
    assert [t.name for t in job_folders.find(str(tmp_path))] == ["a", "b"]
    (tree,) = job_folders.find(str(tmp_path / "a"))
    assert tree.files.keys() == {"job.yaml", "m.py"}
    assert tree.revision.startswith("dir-")
    assert len(tree.revision) == 16


def test_a_folders_revision_is_its_content(tmp_path: Path) -> None:
    one, two = put(tmp_path / "1", "a"), put(tmp_path / "2", "a")
    (two / "__pycache__").mkdir()
    (two / "__pycache__" / "m.cpython-311.pyc").write_bytes(b"x")
    (two / ".editor").write_text("x")
    os.utime(two / "m.py", (1, 1))
    (two / "m.py").chmod(0o755)
    first, second = (job_folders.find(str(f))[0] for f in (one, two))
    assert first.revision == second.revision
    assert trees.archive(first.files) == trees.archive(second.files)
    (two / "m.py").write_text("X = 2\n")
    assert job_folders.find(str(two))[0].revision != first.revision


@pytest.mark.security("5.8")
def test_a_commit_is_read_without_a_checkout(tmp_path: Path) -> None:
    put(tmp_path / "a", "aa")
    put(tmp_path / "b", "bb")
    first = commit(tmp_path)
    (tmp_path / "a" / "m.py").write_text("X = 2\n")
    second = commit(tmp_path)
    (tmp_path / "a" / "m.py").write_text("X = 3\n")
    old, new = (job_folders.find(f"{tmp_path}@{rev}")[0] for rev in (first[:10], "main"))
    assert (old.revision, new.revision) == (first, second)
    assert (old.files["m.py"], new.files["m.py"]) == (b"X = 1\n", b"X = 2\n")
    assert job_folders.find(str(tmp_path))[0].files["m.py"] == b"X = 3\n"
    (sub,) = job_folders.find(f"{tmp_path / 'b'}@{first}")
    assert (sub.name, sub.revision) == ("b", first)
    assert sub.files.keys() == {"job.yaml", "m.py"}


def test_a_bare_repository_gives_its_head(tmp_path: Path) -> None:
    put(tmp_path / "work", "aa")
    head = commit(tmp_path / "work")
    run_git(tmp_path, "clone", "--quiet", "--bare", "work", "bare.git")
    (tree,) = job_folders.find(str(tmp_path / "bare.git"))
    assert (tree.name, tree.revision) == ("bare", head)


@pytest.mark.security("5.8")
def test_hooks_filters_and_configuration_of_a_repository_do_not_run(tmp_path: Path) -> None:
    work = put(tmp_path / "work", "aa")
    (work / ".gitattributes").write_text("*.py filter=evil\n")
    head = commit(work)
    marker = tmp_path / "ran"
    evil = tmp_path / "evil.sh"
    evil.write_text(f"#!/bin/sh\ntouch {marker}\ncat\n")
    evil.chmod(0o755)
    for hook in ("post-checkout", "post-index-change", "reference-transaction"):
        (work / ".git" / "hooks").mkdir(exist_ok=True)
        (work / ".git" / "hooks" / hook).symlink_to(evil)
    for key in ("core.fsmonitor", "filter.evil.smudge", "filter.evil.clean", "core.pager",
                "core.sshCommand", "diff.external", "credential.helper"):  # fmt: skip
        run_git(work, "config", key, str(evil))
    marker.unlink(missing_ok=True)
    (tree,) = job_folders.find(f"{work}@{head}")
    assert tree.files["m.py"] == b"X = 1\n"
    assert not marker.exists()


@pytest.mark.security("5.8")
def test_links_and_submodules_are_refused(tmp_path: Path) -> None:
    work = put(tmp_path / "work", "aa")
    (work / "link.py").symlink_to("/etc/passwd")
    head = commit(work)
    with pytest.raises(BadInputError, match=r"link\.py: is a symbolic link"):
        job_folders.find(f"{work}@{head}")
    with pytest.raises(BadInputError, match=r"link\.py: is a symbolic link"):
        job_folders.find(str(work))
    (work / "link.py").unlink()
    (work / "linked").symlink_to("/etc")
    with pytest.raises(BadInputError, match="linked: is a symbolic link"):
        job_folders.find(str(work))
    (work / "linked").unlink()
    run_git(work, "add", "--all")
    run_git(work, "update-index", "--add", "--cacheinfo", f"160000,{head},sub")
    run_git(work, "commit", "--quiet", "--message=sub")
    with pytest.raises(BadInputError, match="sub: is a submodule"):
        job_folders.find(f"{work}@main")


@pytest.mark.security("5.8")
def test_special_files_are_refused(tmp_path: Path) -> None:
    put(tmp_path / "a", "aa")
    os.mkfifo(tmp_path / "a" / "pipe")
    with pytest.raises(BadInputError, match="pipe: is no regular file"):
        job_folders.find(str(tmp_path / "a"))


@pytest.mark.parametrize(
    "repo",
    ["ext::sh -c touch% /tmp/x", "file:///etc", "fd::17", "git://h/x", "http://h/x",
     "https://h/x y", "transport::https://h/x"],
)  # fmt: skip
@pytest.mark.security("5.8")
def test_addresses_that_are_not_fetched(repo: str) -> None:
    with pytest.raises(RefusedError, match="only https:// and ssh://"):
        job_folders.find(repo)


@pytest.mark.parametrize(
    ("text", "repo", "revision", "url"),
    [
        ("https://user@h/x.git", "https://user@h/x.git", None, True),
        ("https://user@h/x.git@v1.0", "https://user@h/x.git", "v1.0", True),
        ("git@h.com:a/b.git", "git@h.com:a/b.git", None, True),
        ("git@h.com:a/b.git@feature/x", "git@h.com:a/b.git", "feature/x", True),
        ("ssh://git@h:22/a@main", "ssh://git@h:22/a", "main", True),
        ("some/folder@4f2a91c", "some/folder", "4f2a91c", False),
        ("some/folder", "some/folder", None, False),
    ],
)
def test_where_a_repository_is(text: str, repo: str, revision: str | None, url: bool) -> None:
    assert job_folders.locate(text) == job_folders.Location(repo, revision, url)


@pytest.mark.parametrize("revision", ["-x", "--upload-pack=x", "a..b", "HEAD~1", "a b", "", "@{1}"])
@pytest.mark.security("5.8")
def test_revisions_that_are_none(tmp_path: Path, revision: str) -> None:
    put(tmp_path / "a", "aa")
    commit(tmp_path / "a")
    with pytest.raises(UsageError, match="revision"):
        job_folders.find(f"{tmp_path / 'a'}@{revision}")


def test_what_is_not_there(tmp_path: Path) -> None:
    put(tmp_path / "a", "aa")
    with pytest.raises(UsageError, match="is no folder"):
        job_folders.find(str(tmp_path / "nope"))
    with pytest.raises(UsageError, match=r"has no job\.yaml"):
        (tmp_path / "empty").mkdir()
        job_folders.find(str(tmp_path / "empty"))
    with pytest.raises(UsageError, match="is in no git repository"):
        job_folders.find(f"{tmp_path / 'a'}@main")
    commit(tmp_path / "a")
    with pytest.raises(UsageError, match="has no commit 'nope'"):
        job_folders.find(f"{tmp_path / 'a'}@nope")
    with pytest.raises(UsageError, match="write example:wordcount"):
        job_folders.find("example:wordcont")
    with pytest.raises(UsageError, match="expected a folder"):
        job_folders.find("--upload-pack=x")


def test_a_fetch_that_fails_is_reported(tmp_path: Path) -> None:
    with (
        pytest.raises(RetryableError, match="git fetch failed"),
        git.fetched("https://127.0.0.1:1/x.git", None),
    ):
        raise AssertionError("nothing listens on port 1")


def test_mistakes_of_all_jobs_at_once(tmp_path: Path) -> None:
    put(tmp_path / "a", "Aa")
    put(tmp_path / "b", "bb")
    put(tmp_path / "c", "bb")
    with (
        pytest.raises(JobFileErrors) as caught,
        job_folders.validated(job_folders.find(str(tmp_path))),
    ):
        raise AssertionError("not reached")
    text = str(caught.value)
    assert "a/job.yaml:1: name: found 'Aa'" in text
    assert "c/job.yaml:1: name: 'bb' is the name of the job in b/ too" in text


def test_refusals_only(tmp_path: Path) -> None:
    put(tmp_path / "a", "aa")
    with (tmp_path / "a" / "job.yaml").open("a") as file:
        file.write("faultTolerance: {mode: none}\n")
    with (
        pytest.raises(JobFileRefused, match=r"a/job\.yaml:4"),
        job_folders.validated(job_folders.find(str(tmp_path))),
    ):
        raise AssertionError("not reached")


def test_archives_in_a_store(tmp_path: Path) -> None:
    (tree,) = job_folders.find(str(put(tmp_path / "a", "aa")))
    store = LocalStore(tmp_path / "store")
    sha = trees.store_archive(store, tree)
    assert store.list("archives") == [f"archives/{sha}.tar"]
    folder = trees.open_archive(str(tmp_path / "store"), sha, tmp_path / "cache")
    assert trees.read_folder(folder) == tree.files
    assert sorted(p.name for p in (tmp_path / "cache").iterdir()) == [sha]
    store.delete("archives")  # the cached copy serves
    assert trees.fetch_archive(store, sha, tmp_path / "cache") == folder


@pytest.mark.security("5.9")
def test_damage_of_an_archive_is_seen(tmp_path: Path) -> None:
    (tree,) = job_folders.find(str(put(tmp_path / "a", "aa")))
    store = LocalStore(tmp_path / "store")
    sha = trees.store_archive(store, tree)
    folder = trees.fetch_archive(store, sha, tmp_path / "cache")
    (folder / "m.py").write_text("X = 'changed'\n")
    assert trees.fetch_archive(store, sha, tmp_path / "cache") == folder
    assert trees.read_folder(folder) == tree.files
    content = bytearray(store.read(f"archives/{sha}.tar"))
    content[600] ^= 1
    store.write(f"archives/{sha}.tar", [bytes(content)])
    with pytest.raises(DamagedFile, match="expected " + sha):
        trees.fetch_archive(store, sha, tmp_path / "other")
    assert trees.store_archive(store, tree) == sha
    assert trees.fetch_archive(store, sha, tmp_path / "other").is_dir()
    (tmp_path / "full").write_text("no directory can be made here")
    with pytest.raises(RetryableError, match="full"):  # anything else would end the leader
        trees.fetch_archive(store, sha, tmp_path / "full" / "cache")


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", ".hidden", "a\\b"])
@pytest.mark.security("5.10", "5.9")
def test_an_archive_cannot_write_outside(name: str) -> None:
    out = BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        member = tarfile.TarInfo(name)
        member.size = 1
        tar.addfile(member, BytesIO(b"x"))
    with pytest.raises(DamagedFile, match="not an archive of a job"):
        trees.unarchive(out.getvalue())


@pytest.mark.security("5.10", "5.9")
def test_an_archive_with_a_link_is_damaged() -> None:
    out = BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        member = tarfile.TarInfo("x")
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(member)
    with pytest.raises(DamagedFile, match="is no regular file"):
        trees.unarchive(out.getvalue())


@pytest.mark.security("5.12")
def test_limits_of_a_tree(tmp_path: Path) -> None:
    put(tmp_path / "a", "aa")
    (tmp_path / "a" / "big.bin").write_bytes(b"\0" * (trees.FILE_BYTES_MAX + 1))
    with pytest.raises(BadInputError, match="data belongs in a topic"):
        job_folders.find(str(tmp_path / "a"))
    with pytest.raises(BadInputError, match="files, expected"):
        trees.check_files("x", {f"f{i}": b"" for i in range(trees.FILES_MAX + 1)})
    with pytest.raises(BadInputError, match="bytes, expected"):
        trees.check_files("x", {f"f{i}": b"\0" * trees.FILE_BYTES_MAX for i in range(5)})
