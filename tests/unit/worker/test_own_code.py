"""A worker of a deployment that runs no code of jobs, and a job applied regardless."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from perseid.errors import RefusedError
from perseid.jobs.environments.installing import Environments
from perseid.records import Deployment, Plan
from perseid.worker import opening
from perseid.worker.fragment import Fragment

PLAN = Plan.fused("j", "uuid", 3, "w1-a", "r1", "archive", 1, 7, 0)
JOB = """
name: j
sources: {lines: {topic: lines, format: json, columns: {k: string}}}
operators: {counts: {input: lines, use: "USE", key: [k]}}
sinks: {out: {input: counts, topic: out, format: json, key: k}}
"""


@pytest.mark.security("5.7")
@pytest.mark.parametrize(
    ("use", "lock", "allow", "refused"),
    [
        ("counts:Counts", "", False, "counts:Counts: this deployment runs no code of jobs"),
        ("library:CountByKey", "x==1\n", False, "requirements.txt: this deployment runs no code"),
        ("library:CountByKey", "", False, None),
        ("counts:Counts", "", True, None),
    ],
)
def test_it_refuses_the_jobs_code_before_anything_of_it_is_imported(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    use: str,
    lock: str,
    allow: bool,
    refused: str | None,
) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "job.yaml").write_text(JOB.replace("USE", use))
    (folder / "counts.py").write_text("raise SystemExit('it was imported')\n")
    if lock:
        (folder / "requirements.txt").write_text(lock)
    monkeypatch.setattr(opening, "open_archive", lambda *_: folder)

    class ReachedThePackages(Exception):
        pass

    def packages(_: Deployment) -> Any:
        raise ReachedThePackages

    monkeypatch.setattr(Environments, "of", packages)
    deployment = Deployment(
        kafka="k:1", zookeeper="z:2", redis="r:3", store="s", state="t", logs="l",
        jobs_allow_code=allow,
    )  # fmt: skip
    spark = SimpleNamespace(sparkContext=SimpleNamespace(master="local[2]"))
    made = Fragment(cast(Any, spark), deployment, PLAN, "w1-a", tmp_path, tmp_path)
    with ExitStack() as held, pytest.raises(RefusedError if refused else ReachedThePackages) as got:
        made._context(held)
    assert str(got.value).startswith(refused or "")
