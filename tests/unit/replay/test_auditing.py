"""What an audit refuses before it runs. No Spark, no Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perseid.clocks import SystemClock
from perseid.errors import RefusedError, RetryableError
from perseid.jobs.model.trees import archive, archive_path, folder_tree, sha256
from perseid.records import CheckpointPointer, Deployment, JobEntry, Plan
from perseid.replay import ranges
from perseid.replay.auditing import Asked, Auditor
from perseid.replay.ranges import Past, Range
from perseid.replay.request import Request
from perseid.state.durability.store import LocalStore
from perseid.topics.chain import Base
from perseid.topics.records import EpochDone, SourceRange, Token

JOB = """\
name: shop
sources:
  rows: {topic: rows, format: json, columns: {k: string}}
sinks:
  out: {input: rows, topic: out, format: json}
"""
SPAN = Range("u", "r7", 1, 1, 1, 0, 1, None, 0, 0, {2: Token(1, "u", 1, 1, "r7", 1, (), 1_000)})


@dataclass
class World:
    """A job that was applied once, and has run."""

    folder: Path

    def __post_init__(self) -> None:
        self.settings = Deployment(
            kafka="k:1", zookeeper="z:2", redis="r:3", store=str(self.folder / "store"),
            state=str(self.folder / "state"), logs=str(self.folder / "logs"),
        )  # fmt: skip
        self.source = self.folder / "shop"
        self.source.mkdir()
        sha = self.write(JOB)
        self.entry = JobEntry("shop", "u", "r7", sha, "running", 1, 0)
        self.last_plan: Plan | None = Plan("shop", "u", 1, "r7", sha, 1, 0, 1, ())

    def write(self, text: str) -> str:
        """Changes the job's folder; its archive in the store."""
        (self.source / "job.yaml").write_text(text)
        content = archive(folder_tree(self.source, "shop").files)
        LocalStore(self.settings.store).write(archive_path(sha256(content)), [content])
        return sha256(content)

    # Registry

    def job_entry(self, name: str) -> Any:
        return SimpleNamespace(value=self.entry) if name == self.entry.name else None

    def jobs(self) -> dict[str, JobEntry]:
        return {self.entry.name: self.entry}

    def plan(self, _name: str) -> Plan | None:
        return self.last_plan

    def pointers(self, _name: str) -> None:
        return None

    # Topics: every input is there

    def identities(self, topics: Sequence[str]) -> dict[str, str]:
        return dict.fromkeys(topics, "id")

    def starts(self, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return dict.fromkeys(places, 0)

    def auditor(self, job: str = "shop") -> Auditor:
        asked = Asked(job, Request(epochs=(1, 1)), self.folder / "audit", 1)
        (self.folder / "audit").mkdir(exist_ok=True)
        return Auditor(
            self.settings, self, self, SystemClock(), asked, str  # type: ignore[arg-type]
        )  # fmt: skip


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Its audits are killed when Spark is to start."""

    def killed(_self: Auditor) -> None:
        raise RetryableError("killed")

    monkeypatch.setattr(Auditor, "_range", lambda *_, whole: SPAN)
    monkeypatch.setattr(Auditor, "_spark", killed)
    return World(tmp_path)


def test_a_job_that_is_not_there_is_refused_with_those_that_are(world: World) -> None:
    with pytest.raises(RefusedError, match="there is no job shops; the applied jobs are: shop"):
        world.auditor("shops").audit()


@pytest.mark.parametrize("uuid", ["v", None])
def test_a_job_that_never_ran_is_refused(world: World, uuid: str | None) -> None:
    """Also one that was removed, and applied again since."""
    assert world.last_plan is not None
    world.last_plan = None if uuid is None else replace(world.last_plan, job_uuid=uuid)
    with pytest.raises(RefusedError, match="shop has never run, so it has no past; `perseid jobs"):
        world.auditor().audit()


def test_a_revision_that_cannot_be_imported_is_refused_before_anything_runs(world: World) -> None:
    (world.source / "counts.py").write_text("import nowhere_at_all\n")
    operator = 'operators:\n  counts: {input: rows, use: "counts:Counts"}\nsinks:'
    text = JOB.replace("sinks:", operator).replace("out: {input: rows", "out: {input: counts")
    sha = world.write(text)
    assert world.last_plan is not None
    world.entry = replace(world.entry, archive=sha)
    world.last_plan = replace(world.last_plan, archive=sha)
    with pytest.raises(RefusedError, match=r"revision r7 cannot run here.*nowhere_at_all"):
        world.auditor().audit()


def test_a_revision_that_can_run_is_not_refused(world: World) -> None:
    with pytest.raises(RetryableError, match="killed"):
        world.auditor().audit()


def test_a_dry_run_estimates_from_all_of_the_token_log_and_runs_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a sample: each part from its own base."""
    tokens = {
        1 + e: Token(1, "u", e, e, "r7", 1, ((SourceRange("rows", "rows", "id", 0, 0, e),),), e)
        for e in range(1, 21)
    }
    held = Past(Base("u", 0, 1), True, tokens)
    kept = [CheckpointPointer(e, 1, 1, "r7", 1 + e, "m", 0, 0, 0) for e in (5, 10, 15)]
    resolve = partial(
        ranges.resolve, checkpoints=kept, job="shop", committed_epoch=20, now_ms=0
    )  # fmt: skip

    def read(auditor: Any, *_: object, whole: bool) -> Range:
        assert whole
        auditor._past, auditor._resolve, auditor._kept = held, resolve, tuple(kept)
        return resolve(Request(epochs=(1, 20)), held)

    done = [EpochDone("u", 1, "i", 20, 21, 20, 20, 4_000, bytes_in={"rows": 700})]
    monkeypatch.setattr(Auditor, "_range", read)
    monkeypatch.setattr("perseid.replay.planned.reports", lambda *_: done)
    found = world.auditor().planned()
    assert (found.epochs, found.compared, found.records) == (20, 20, sum(range(1, 21)))
    assert (found.measured, found.base, found.topics) == (1, "scratch", ("out",))
    assert (found.sample, found.gone) == ("", "")
    sample = world.auditor().planned(Fraction(1, 4), 1)
    (part,) = ranges.sampled(
        resolve(Request(epochs=(1, 20)), held), kept, Fraction(1, 4), 1
    ).parts  # fmt: skip
    assert (sample.first_epoch, sample.last_epoch) == part
    assert (sample.epochs, sample.compared) == (5, 5)
    assert sample.records == sum(range(part[0], part[1] + 1))
    assert sample.base == ("scratch" if part[0] == 1 else f"checkpoint {part[0] - 1}")
    assert sample.sample.startswith("a sample of 1 of 4 intervals between checkpoints, drawn with")
