"""The pages of the repository: links lead somewhere, READMEs and decision records stay short."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    Path(name)
    for name in subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", "*.md"],
        capture_output=True, text=True, check=True,
    ).stdout.splitlines()
    if (ROOT / name).is_file()
)  # fmt: skip
WORDS_MAX = {"README.md": 800}  # the top one: a newcomer reads it in four minutes
README_WORDS_MAX = 600
DECISION_WORDS_MAX = 200
_LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")
_CODE = re.compile(r"```.*?```", re.DOTALL)


def words(page: Path) -> int:
    return len((ROOT / page).read_text(encoding="utf-8").split())


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_to_files(page: Path) -> None:
    text = _CODE.sub("", (ROOT / page).read_text(encoding="utf-8"))
    targets = [target for target, _ in _LINK.findall(text)]
    missing = [t for t in targets if not (ROOT / page.parent / t).exists()]
    assert missing == []


SHORT = [page for page in PAGES if page.name == "README.md" or page.parent.name == "decisions"]


@pytest.mark.parametrize("page", SHORT, ids=str)
def test_readmes_and_decisions_are_short(page: Path) -> None:
    usual = README_WORDS_MAX if page.name == "README.md" else DECISION_WORDS_MAX
    assert words(page) <= WORDS_MAX.get(str(page), usual)
