"""Which files of a revision cannot be audited here."""

from __future__ import annotations

from pathlib import Path

import pytest

from perseid.errors import RefusedError
from perseid.jobs.model.trees import archive, archive_path, folder_tree, sha256
from perseid.records import Deployment
from perseid.replay import programs
from perseid.replay.programs import Program
from perseid.state.durability.store import LocalStore

JOB = """\
name: shop
sources:
  rows: {topic: rows, format: json, columns: {k: string}}
operators:
  counts: {input: rows, key: k, use: "counts:Counts"}
sinks:
  out: {input: counts, topic: out, format: json, key: k}
"""
CODE = """\
from perseid.jobs import Operator


class Counts(Operator):
    def process(self, batch, out):
        out.emit(batch)
"""


@pytest.fixture
def settings(tmp_path: Path) -> Deployment:
    return Deployment(
        kafka="k:1", zookeeper="z:2", redis="r:3", store=str(tmp_path / "store"),
        state=str(tmp_path / "state"), logs=str(tmp_path / "logs"),
    )  # fmt: skip


def stored(tmp_path: Path, settings: Deployment, **files: str) -> Program:
    folder = tmp_path / "job"
    folder.mkdir()
    for name, text in {"job.yaml": JOB, "counts.py": CODE, **files}.items():
        (folder / name).write_text(text)
    content = archive(folder_tree(folder, "job").files)
    LocalStore(settings.store).write(archive_path(sha256(content)), [content])
    return Program("r7", sha256(content))


def test_a_revision_that_runs_is_not_refused(tmp_path: Path, settings: Deployment) -> None:
    program = stored(tmp_path, settings)
    assert programs.read(program, settings).name == "shop"
    programs.refuse_unusable(program, settings)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"counts.py": "import nowhere_at_all\n"}, ["counts.py:1", "nowhere_at_all"]),
        ({"counts.py": "def broken(:\n"}, ["counts.py:1: cannot be imported: SyntaxError"]),
        ({"counts.py": "raise SystemExit(9)\n"}, ["counts.py:1: cannot be imported"]),
        ({"counts.py": CODE.replace("Counts", "Count")}, ["counts:Counts", "`counts:Count`"]),
        ({"requirements.txt": "numpy\n"}, ["requirements.txt"]),
    ],
)
def test_a_revision_that_cannot_run_here_is_refused(
    tmp_path: Path, settings: Deployment, files: dict[str, str], words: list[str]
) -> None:
    program = stored(tmp_path, settings, **files)
    with pytest.raises(RefusedError) as refused:
        programs.refuse_unusable(program, settings)
    for word in ["revision r7 cannot run here, so it cannot be audited: ", *words]:
        assert word in str(refused.value)


def test_a_revision_that_is_no_job_any_more_is_refused(
    tmp_path: Path, settings: Deployment
) -> None:
    program = stored(tmp_path, settings, **{"job.yaml": JOB.replace("sinks:", "snks:")})
    with pytest.raises(RefusedError, match=r"revision r7 cannot run here.*job\.yaml"):
        programs.read(program, settings)


def test_a_revision_whose_archive_is_lost_is_refused(tmp_path: Path, settings: Deployment) -> None:
    LocalStore(settings.store)
    with pytest.raises(RefusedError, match=r"revision r8 cannot run here.*is missing"):
        programs.read(Program("r8", "0" * 64), settings)
