"""The README's commands that need no cluster do what it describes, word by word."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from perseid.cli.main import run

README = Path(__file__).parents[3] / "README.md"
PLANS = re.findall(r"^    \./perseid (plan [^#\n]+)", README.read_text(), re.MULTILINE)
SIZES = "time_s,operator,bytes\n" + "".join(
    f"{second},sums,{1_000_000 * (1 + second % 50)}\n" for second in range(400)
)


def test_the_readme_shows_the_planners() -> None:
    assert [words.split()[1] for words in PLANS] == [
        "replication", "recovery", "checkpoint", "thresholds",
    ]  # fmt: skip


@pytest.mark.parametrize("words", PLANS)
def test_a_planner_of_the_readme_answers(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["init", "my-job"]) == 0
    (tmp_path / "sizes.csv").write_text(SIZES)
    capsys.readouterr()
    assert run(shlex.split(words)) == 0
    assert capsys.readouterr().out.strip()
    for plot in re.findall(r"--plot (\S+)", words):
        assert (tmp_path / plot).stat().st_size > 1000
