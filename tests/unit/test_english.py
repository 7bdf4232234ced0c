"""Plain English: in-house phrases stay out of names, messages, docstrings, comments and pages.

`python tests/unit/test_english.py [COMMIT]` prints how often each phrase is used.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# phrase -> what to write. A name counts by its words: `job_goes_on` and `GoesOn` are "goes on".
PHRASES = {
    "anew": "again",
    "behind": "after",
    "beside": "next to, with, besides",
    "dealt out": "distributed, redistributed",
    "for ever": "without end",
    "gave way": "was replaced",
    "gives way": "is replaced",
    "given up": "aborted, dropped",
    "go on": "continue",
    "goes on": "continues, resumes after",
    "going on": "continuing",
    "heir": "new owner",
    "in peace": "cleanly",
    "narrow epoch": "single-task epoch",
    "news": "event, report",
    "nobody": "name the part",
    "of before": "previous, earlier",
    "owing": "retry pending",
    "passed over": "superseded, skipped",
    "passing": "transient",
    "said": "reported; name the text",
    "say": "report, note",
    "saying": "reporting",
    "says": "reports, gives, has",
    "standstill": "host stall",
    "stood still": "host stall; hung, was paused",
    "story": "transition log",
    "tell": "report",
    "telling": "reporting",
    "tells": "reports",
    "told": "reported",
    "trial": "scenario",
    "trials": "scenarios",
    "unfounded": "base expired",
    "victim": "target",
    "victims": "targets, nemesis",
    "went on": "continued",
    "whoever": "name the part",
    "wide epoch": "shuffled epoch",
}
# Uses that are right; each is left out of the count.
ALLOWED = [
    r"\bs behind\b|ahead of[^\n]*\bbehind\b",  # a clock is ahead of another, or behind it
    r"\.tell\(\)",  # of a file
    r"/news\b",  # a page that the tests' visitors open
]
SUFFIXES = {".py", ".pyi", ".md", ".c", ".h", ".toml", ".yaml", ".yml", ".json", ".avsc", ".sh"}
_WORDS_APART = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BETWEEN = r"[\s_#\"'*]+"  # a phrase may go on in the next line of a comment or text
_FOUND = {
    phrase: re.compile(rf"(?<![a-z]){_BETWEEN.join(phrase.split())}(?![a-z])") for phrase in PHRASES
}
_ALLOWED = re.compile("|".join(ALLOWED), re.MULTILINE)


def counted(text: str) -> Counter[str]:
    text = _WORDS_APART.sub(" ", _ALLOWED.sub("", text)).lower()
    return Counter({phrase: len(found.findall(text)) for phrase, found in _FOUND.items()})


def git(*arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True
    ).stdout


def texts(commit: str = "") -> Iterator[tuple[str, str]]:
    """Name and text of every file that people read, of the work tree or of a commit."""
    listed = (
        ("ls-tree", "-r", "--name-only", commit)
        if commit
        else ("ls-files", "-co", "--exclude-standard")
    )
    for name in git(*listed).splitlines():
        if name == str(Path(__file__).relative_to(ROOT)):
            continue
        if Path(name).suffix in SUFFIXES or name == "perseid":
            if commit:
                yield name, git("show", f"{commit}:{name}")
            elif (ROOT / name).is_file():
                yield name, (ROOT / name).read_text(encoding="utf-8")


def test_no_in_house_phrase_is_used() -> None:
    used = [
        f"{name}: {phrase!r}, write: {PHRASES[phrase]}"
        for name, text in texts()
        for phrase, times in counted(text).items()
        if times
    ]
    assert used == []


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("def test_a_job_goes_on()", "goes on"),
        ("# it goes\n    # on", "goes on"),
        ('"nobody" "else"', "nobody"),
        ("class Victims:", "victims"),
        ("FOR_EVER_S", "for ever"),
        ("epoch.before-told", "told"),
    ],
)
def test_a_phrase_is_found(text: str, phrase: str) -> None:
    assert {found for found, times in counted(text).items() if times} == {phrase}


@pytest.mark.parametrize("text", ["sayings", "file.tell()", "3.0 s behind ours", "newspaper"])
def test_other_uses_are_not_counted(text: str) -> None:
    assert not counted(text).total()


if __name__ == "__main__":
    total = Counter[str]()
    for _, text in texts(*sys.argv[1:]):
        total.update(counted(text))
    for phrase in PHRASES:
        print(f"{phrase:14}{total[phrase]:6}")
    print(f"{'total':14}{total.total():6}")
