"""A hostile config repository on a real git server: what is taken of it, and what is reported."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from perseid.errors import BadInputError, RetryableError
from perseid.jobs.following.remote import Remote
from perseid.jobs.following.settings import Settings, settings
from perseid.jobs.repository import git as git_command
from support.git_server import GitServer, Origin, git

JOB = """\
name: {name}
sources: {{x: {{topic: x, format: text}}}}
sinks: {{s: {{input: x, topic: {name}-out, format: text}}}}
"""
Entries = dict[str, tuple[str, str]]


class Team:
    """A served repository with the folder `good` in it, and who follows it."""

    def __init__(self, folder: Path, server: GitServer) -> None:
        self.folder, self.server = folder, server
        self.origin = Origin(server.folder / "team" / "jobs.git")
        self.good = self.origin.files({"good/job.yaml": JOB.format(name="good")})
        self.settings = settings(f"{server.url}/team/jobs.git", "main", insecure=True)
        self.remote = Remote(self.settings, folder / "copy.git")

    def with_settings(self, config: Settings) -> None:
        self.settings, self.remote = config, Remote(config, self.remote.copy)

    def faults(self, entries: Entries) -> dict[str, str]:
        """What is wrong with each folder of these with `good`, which is always good."""
        commit = self.origin.commit(self.good | entries)
        assert self.remote.look("").commit == commit
        found = {one.folder: one for one in self.remote.found(commit)}
        assert (found["good"].job, found.pop("good").fault) == ("good", "")
        return {name: one.fault for name, one in found.items()}


@pytest.fixture
def team(tmp_path: Path) -> Iterator[Team]:
    with GitServer(tmp_path / "served") as server:
        yield Team(tmp_path, server)


def test_a_fetch_is_incremental_and_one_commit(team: Team) -> None:
    first = team.origin.commit(team.good)
    assert team.remote.look("").commit == first
    second = team.origin.commit(team.good | team.origin.files({"b/job.yaml": JOB.format(name="b")}))
    seen = team.remote.look(first)
    assert (seen.commit, seen.follows) == (second, True)
    assert [one.job for one in team.remote.found(second)] == ["b", "good"]
    assert [one.job for one in team.remote.found(first)] == ["good"]
    team.server.asked.clear()
    assert team.remote.look(second).commit == second
    assert not [path for path in team.server.asked if path.endswith("/git-receive-pack")]


def test_hostile_folders(team: Team) -> None:
    origin = team.origin
    link = ("120000", origin.blob(b"/etc/passwd"))
    job = ("100644", origin.blob(JOB.format(name="evil").encode()))
    lfs = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 9\n"
    huge = origin.blob(b"x" * ((4 << 20) + 1))
    filters = origin.blob(b"* filter=evil diff=evil\n*.bin filter=lfs\n")
    faults = team.faults({
        "linked": ("040000", origin.tree({"job.yaml": job, "passwd": link})),
        "job-is-link": ("040000", origin.tree({"job.yaml": link})),
        "module": ("040000", origin.tree({"job.yaml": job, "sub": ("160000", "1" * 40)})),
        "top-module": ("160000", "1" * 40),
        "top-link": ("120000", origin.blob(b"good")),
        "lfs": ("040000", origin.tree({"job.yaml": job, "data.bin": ("100644", origin.blob(lfs))})),
        "huge": ("040000", origin.tree({"job.yaml": job, "data.bin": ("100644", huge)})),
        "filtered": ("040000", origin.tree({
            "job.yaml": ("100644", origin.blob(JOB.format(name="filtered").encode())),
            ".gitattributes": ("100644", filters),
        })),
        "control": ("040000", origin.tree({"job.yaml": job, "a\tb.py": job})),
    })  # fmt: skip
    message = {
        "linked": "is a symbolic link", "job-is-link": "is a symbolic link",
        "module": "is a submodule", "top-module": "is a submodule", "lfs": "is kept in Git LFS",
        "huge": f"has {(4 << 20) + 1} bytes", "filtered": "", "control": "is not accepted",
    }  # fmt: skip
    assert faults.keys() == message.keys()
    for folder, text in message.items():
        assert text in faults[folder] if text else faults[folder] == "", folder
    assert not [f for f in team.remote.copy.rglob("*") if f.name in ("passwd", "job.yaml")]


def test_paths_that_leave_the_folder_are_refused_by_git_or_left_out(team: Team) -> None:
    origin = team.origin
    job = ("100644", origin.blob(JOB.format(name="evil").encode()))
    for name in ("..", ".git"):
        inner = origin.tree({name: ("040000", origin.tree({"x.py": job})), "job.yaml": job})
        commit = origin.commit(team.good | {"evil": ("040000", inner)})
        with pytest.raises(BadInputError, match="does not accept what the server sends"):
            team.remote.look("")
        assert not [f for f in team.folder.rglob("x.py")], commit


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, Path]:
    found = {}
    for name in ("ann", "eve"):
        found[name] = tmp_path / name
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(found[name])],
            check=True,
        )  # fmt: skip
    (tmp_path / "signers").write_text(
        f'ann@example.org namespaces="git" {found["ann"].with_suffix(".pub").read_text()}'
    )
    return found


def test_only_commits_of_allowed_signers_are_taken(team: Team, keys: dict[str, Path]) -> None:
    team.with_settings(replace(team.settings, signers=team.folder / "signers"))
    signed = team.origin.commit(team.good, key=keys["ann"])
    assert team.remote.look("").unsigned is None
    team.origin.commit(team.good)
    unsigned = team.remote.look(signed)
    assert (unsigned.unsigned, unsigned.follows) == ("it is not signed", True)
    team.origin.commit(team.good, key=keys["eve"])
    assert team.remote.look(signed).unsigned is not None
    team.origin.commit(team.good | {"x": team.good["good"]}, on="", key=keys["ann"])
    rewritten = team.remote.look(signed)
    assert (rewritten.unsigned, rewritten.follows) == (None, False)


def test_a_signature_that_was_tampered_with_is_none(team: Team, keys: dict[str, Path]) -> None:
    team.with_settings(replace(team.settings, signers=team.folder / "signers"))
    signed = team.origin.commit(team.good, key=keys["ann"])
    raw = subprocess.run(
        ["git", "-C", str(team.origin.path), "cat-file", "commit", signed], check=True,
        capture_output=True,
    ).stdout  # fmt: skip
    changed = raw.replace(b"\nx\n", b"\ny\n") if raw.endswith(b"\nx\n") else raw + b"y\n"
    forged = git(team.origin.path, "hash-object", "-t", "commit", "-w", "--stdin", stdin=changed)
    git(team.origin.path, "update-ref", "refs/heads/main", forged)
    assert team.remote.look("").unsigned is not None


def test_a_forced_push_is_seen_and_the_previous_commit_can_be_gone(team: Team) -> None:
    first = team.origin.commit(team.good)
    second = team.origin.commit(team.good)
    team.remote.look(first)
    assert team.origin.commit(team.good | {"x": team.good["good"]}, on=first) != second
    assert not team.remote.look(second).follows
    git(team.origin.path, "reflog", "expire", "--expire=now", "--all")
    git(team.origin.path, "gc", "--quiet", "--prune=now")
    fresh = Remote(team.settings, team.folder / "fresh.git")
    assert not fresh.look(second).follows
    assert fresh.look(first).follows


def test_a_ref_that_is_not_there(team: Team) -> None:
    commit = team.origin.commit(team.good)
    team.with_settings(replace(team.settings, ref="release"))
    with pytest.raises(BadInputError, match="has no refs/heads/release"):
        team.remote.look("")
    git(team.origin.path, "tag", "-m", "x", "v1", commit)
    team.with_settings(replace(team.settings, ref="refs/tags/v1"))
    assert team.remote.look("").commit == commit


def test_a_server_that_vanishes_comes_back(team: Team) -> None:
    commit = team.origin.commit(team.good)
    team.remote.look("")
    hidden = team.origin.path.rename(team.folder / "away.git")
    with pytest.raises(RetryableError):
        team.remote.look(commit)
    hidden.rename(team.origin.path)
    assert team.remote.look(commit).follows
    team.server.stop()
    with pytest.raises(RetryableError):
        team.remote.look(commit)


def test_a_server_cannot_fill_the_disk(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    noise = random.Random(1).randbytes(3 << 20)
    commit = team.origin.commit(team.good | {"noise": ("100644", team.origin.blob(noise))})
    monkeypatch.setattr(git_command, "FETCHED_BYTES_MAX", 1 << 20)
    with pytest.raises(RetryableError):
        team.remote.look("")
    monkeypatch.undo()
    assert team.remote.look("").commit == commit


def test_a_login_reaches_its_server_and_no_other(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with GitServer(tmp_path / "served", login="ann:s3cret") as server:
        team = Team(tmp_path, server)
        commit = team.origin.commit(team.good)
        with pytest.raises(RetryableError) as caught:
            team.remote.look("")
        own = settings(team.settings.url, "main", insecure=True, login="ann:s3cret")
        team.with_settings(own)
        assert team.remote.look("").commit == commit
        wrong = settings(team.settings.url, "main", insecure=True, login="ann:wr0ng")
        with pytest.raises(RetryableError) as refused:
            Remote(wrong, tmp_path / "other.git").look("")
        others = team.remote.copy / "config"
        shown = f"{caught.value} {refused.value} {capfd.readouterr()} {others.read_text()}"
        assert "s3cret" not in shown
        assert "wr0ng" not in shown


def test_a_copy_that_was_damaged_is_recreated(team: Team) -> None:
    commit = team.origin.commit(team.good)
    team.remote.look("")
    (team.remote.copy / "config").write_text("[")
    with pytest.raises(RetryableError):
        team.remote.look(commit)
    assert team.remote.look(commit).follows
    for file in (team.remote.copy / "objects").rglob("*"):
        if file.is_file():
            file.chmod(0o600)
            file.write_bytes(b"")
    with pytest.raises((BadInputError, RetryableError)):
        team.remote.found(commit)
    assert team.remote.look(commit).follows
    assert [one.job for one in team.remote.found(commit)] == ["good"]
