from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.coordinator.api import tokens
from perseid.coordinator.api.tokens import Principal, Role, TokenFile
from perseid.errors import UsageError

HASH = tokens.hashed("x")


@pytest.mark.security("5.6", "5.14")
def test_a_new_token_is_its_principals_and_is_not_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    ann, bob = tokens.added(path, "ann", Role.OPERATOR), tokens.added(path, "bob", Role.VIEWER)
    assert ann is not None and bob is not None
    file = TokenFile(path)
    assert file.principal(ann) == Principal("ann", Role.OPERATOR)
    assert file.principal(bob) == Principal("bob", Role.VIEWER)
    assert file.principal(ann[:-1]) is None
    assert ann not in path.read_text() and bob not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["tokens"]


def test_comments_stay_and_a_taken_name_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"# of the team\n\nann viewer {HASH}")  # without an end of line
    path.chmod(0o640)
    with pytest.raises(UsageError, match="tokens: ann has a token already"):
        tokens.added(path, "ann", Role.ADMIN)
    assert path.read_text() == f"# of the team\n\nann viewer {HASH}"
    secret = tokens.added(path, "bob", Role.ADMIN)
    assert path.read_text().startswith(f"# of the team\n\nann viewer {HASH}\nbob admin ")
    assert path.stat().st_mode & 0o777 == 0o640
    assert TokenFile(path).principal(secret or "") == Principal("bob", Role.ADMIN)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("ann viewer", "has 2 words instead of 3"),
        (f"ann viewer {HASH} x", "has 4 words instead of 3"),
        (f"an/n viewer {HASH}", "has a name that is not"),
        (f"ann root {HASH}", "has no role as its second word"),
        (f"ann viewer {HASH.upper()}", "has no SHA-256"),
        ("ann viewer perseid_plain-secret", "has no SHA-256"),
        (f"bob viewer {HASH}", "has a name that an earlier line has"),
    ],
)
@pytest.mark.security("5.6", "5.14")
def test_a_bad_line_is_named_and_not_quoted(line: str, fault: str, tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"bob admin {HASH}\n{line}\n")
    with pytest.raises(UsageError) as raised:
        TokenFile(path)
    text = str(raised.value)
    assert f"{path}:2: {fault}" in text
    assert "expected `NAME viewer|operator|admin SHA256-HEX`" in text
    assert line not in text and "secret" not in text and HASH not in text.lower()


def test_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    ann = tokens.added(path, "ann", Role.ADMIN) or ""
    file = TokenFile(path)
    bob = tokens.added(path, "bob", Role.VIEWER) or ""
    assert file.principal(bob) == Principal("bob", Role.VIEWER)
    path.write_text("\n".join(line for line in path.read_text().splitlines() if "ann" not in line))
    assert file.principal(ann) is None


@pytest.mark.security("5.6")
def test_a_file_that_went_bad_admits_no_request(tmp_path: Path) -> None:
    """Its last good content could hold the token that was to be taken out."""
    path = tmp_path / "tokens"
    ann = tokens.added(path, "ann", Role.ADMIN) or ""
    file = TokenFile(path)
    path.write_text(path.read_text() + "bob\n")
    for _ in range(2):
        with pytest.raises(UsageError, match="tokens:2: has 1 words"):
            file.principal(ann)
    path.unlink()
    with pytest.raises(UsageError, match="cannot be read: FileNotFoundError"):
        file.principal(ann)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="perseid tokens new"):
        TokenFile(tmp_path / "absent")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="UnicodeDecodeError"):
        TokenFile(tmp_path / "binary")
    (tmp_path / "large").write_bytes(b"#" * (tokens.FILE_BYTES_MAX + 1))
    with pytest.raises(UsageError, match="is larger than"):
        TokenFile(tmp_path / "large")


@given(st.text())
def test_any_text_is_parsed_or_refused_with_its_line(text: str) -> None:
    try:
        found = tokens.parsed(text, "f")
    except UsageError as error:
        assert str(error).startswith("f:")
    else:
        written = "".join(f"{entry}\n" for entry in found)
        assert tokens.parsed(written, "f") == found


@given(st.text())
@pytest.mark.security("5.6")
def test_no_text_is_anybodys_token(secret: str) -> None:
    entries = tokens.parsed(f"ann admin {tokens.hashed('perseid_' + secret)}", "f")
    assert tokens.principal_of(entries, secret) is None
