"""Functions of the user: found by file or by module, and held to what they may return."""

from __future__ import annotations

from pathlib import Path

import pytest

from perseid.cli import transforms
from perseid.cli.dead_letters import Letter
from perseid.errors import PermanentError, UsageError

LETTER = Letter("dlq", 0, 5, 0, None, b"a\xff")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mending.py").write_text(
        "def good(letter):\n    return letter.value[:1]\n\n"
        "def late(letter):\n    return None\n\n"
        "def text(letter):\n    return 'a'\n\n"
        "def wrong(letter):\n    raise KeyError('user')\n\n"
        "number = 5\n"
    )
    (tmp_path / "torn.py").write_text("import no_such_module\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("module", ["mending.py", "mending", "./mending.py"])
def test_a_function_of_a_file_or_of_a_module_here(folder: Path, module: str) -> None:
    function = transforms.load(f"{module}:good")
    assert transforms.corrected(function, "good", LETTER) == b"a"
    assert transforms.corrected(transforms.load(f"{module}:late"), "late", LETTER) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mending.py", "expected FILE.py:FUNCTION"),
        ("mending.py:", "expected FILE.py:FUNCTION"),
        ("other.py:good", "there is no file other.py"),
        ("no_such_module:good", "cannot be imported: ModuleNotFoundError"),
        ("torn.py:good", "cannot be imported: ModuleNotFoundError"),
        ("mending.py:bad", "no function bad; write `def bad(letter)"),
        ("mending.py:number", "no function number"),
    ],
)
def test_what_is_no_function_is_bad_usage(folder: Path, text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        transforms.load(text)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [("wrong", "raised KeyError: 'user'"), ("text", "returned str, expected bytes")],
)
def test_a_function_that_fails_is_reported_with_its_letter(
    folder: Path, name: str, words: str
) -> None:
    with pytest.raises(PermanentError) as caught:
        transforms.corrected(transforms.load(f"mending.py:{name}"), name, LETTER)
    assert f"dead letter 0:5 of dlq: transform {name} {words}" in str(caught.value)
