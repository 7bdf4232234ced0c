from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from perseid.coordinator.api.tokens import Principal, Role, TokenFile

Run = Callable[..., Any]


def test_a_token_is_made_and_printed_once(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "tokens.txt"
    made = run("tokens", "new", "ann", "--role", "operator", "--file", str(file), "--json")
    assert (made["name"], made["role"], made["dry_run"]) == ("ann", "operator", False)
    assert TokenFile(file).principal(made["token"]) == Principal("ann", Role.OPERATOR)
    first, _, note = run("tokens", "new", "bob", "--role", "viewer", "--file", str(file)).partition(
        "\n"
    )
    assert TokenFile(file).principal(first) == Principal("bob", Role.VIEWER)
    assert first not in note


def test_a_dry_run_writes_nothing(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "tokens.txt"
    arguments = ("tokens", "new", "ann", "--role", "admin", "--file", str(file), "--dry-run")
    assert run(*arguments) == f"would add ann as admin to {file}\n"
    assert run(*arguments, "--json")["token"] is None
    assert not file.exists()


def test_what_cannot_be(run: Run, tmp_path: Path) -> None:
    file = str(tmp_path / "tokens.txt")
    assert "expected viewer, operator, admin" in run(
        "tokens", "new", "ann", "--role", "root", "--file", file, code=2
    )
    assert "expected a name of" in run(
        "tokens", "new", "a:n", "--role", "admin", "--file", file, code=2
    )
    run("tokens", "new", "ann", "--role", "admin", "--file", file)
    taken = run("tokens", "new", "ann", "--role", "admin", "--file", file, code=2)
    assert "ann has a token already" in taken
    absent = str(tmp_path / "absent" / "tokens.txt")
    assert "FileNotFoundError" in run(
        "tokens", "new", "ann", "--role", "admin", "--file", absent, code=2
    )


def test_the_first_tokens_of_a_deployment(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "access"
    wanted = ("tokens", "init", str(folder), "monitor=viewer", "ann=admin")
    file = Path(run(*wanted, "--json")["file"])
    assert file == folder / "tokens"
    secrets = {name: (folder / f"{name}.token").read_text() for name in ("monitor", "ann")}
    known = TokenFile(file)
    assert known.principal(secrets["monitor"]) == Principal("monitor", Role.VIEWER)
    assert known.principal(secrets["ann"]) == Principal("ann", Role.ADMIN)
    assert (folder / "ann.token").stat().st_mode & 0o777 == 0o600
    assert file.stat().st_mode & 0o777 == 0o600
    run(*wanted)
    assert secrets["ann"] == (folder / "ann.token").read_text(), "what is there stays"


def test_a_kill_before_the_token_file_is_written_leaves_nothing_that_counts(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "ann.token").write_text("perseid_of-a-run-that-was-killed")
    run("tokens", "init", str(tmp_path), "ann=viewer")
    secret = (tmp_path / "ann.token").read_text()
    assert TokenFile(tmp_path / "tokens").principal(secret) == Principal("ann", Role.VIEWER)


def test_first_tokens_that_cannot_be(run: Run, tmp_path: Path) -> None:
    for wanted in (["ann=root"], ["ann"], ["ann=viewer", "ann=admin"]):
        assert "NAME=viewer|operator|admin" in run("tokens", "init", str(tmp_path), *wanted, code=2)
    (tmp_path / "tokens").write_text("ann root\n")
    assert "has 2 words instead of 3" in run("tokens", "init", str(tmp_path), "ann=viewer", code=2)
