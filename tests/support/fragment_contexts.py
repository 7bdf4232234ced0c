"""The context of a fragment whose job lies in a folder, for tests without Spark."""

from __future__ import annotations

from pathlib import Path

from perseid.jobs.model import layout as layouts
from perseid.jobs.validation import parse
from perseid.records import Deployment
from perseid.worker.dataflow.context import FragmentContext

DEPLOYMENT = Deployment(kafka="k:1", zookeeper="z:2", redis="r:3", store="s", state="t", logs="l")


def context_of(folder: Path, *, deployment: Deployment = DEPLOYMENT) -> FragmentContext:
    """On a local master with two cores, in generation 1."""
    spec = parse.load(folder)
    return FragmentContext(
        deployment=deployment, job=spec.name, job_uuid="u", generation=1, incarnation="w1-a",
        revision="r", archive="a", folder=str(folder), base_epoch=0, lanes=2,
        one_task_each=False, layout=layouts.build(spec, 1), rescaled=False,
    )  # fmt: skip
