"""Applies one job folder of a commit, in a process of its own: `python -m ... < order`.

Applying imports the job's code. In a process of its own it can neither block nor end the follower,
nor conflict with the code of another job, and its output does no harm. The order comes on standard
input; the outcome goes into a file that the order names.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from perseid.errors import BadInputError, PerseidError
from perseid.jobs.model.problems import JobFileErrors, JobFileRefused
from perseid.jobs.model.spec import JobSpec
from perseid.jobs.model.trees import JobTree
from perseid.jobs.operations import applying, connecting
from perseid.jobs.operations.applying import Cluster
from perseid.jobs.repository import job_folders
from perseid.records import Deployment
from perseid.registry.repository import RepoNodes

APPLY_S = 300.0  # imports and a slow store or registry; then the next job is applied


@dataclass(frozen=True, slots=True)
class Order:
    """What to apply. `version`: of the repository's record, which fences the write."""

    copy: str
    url: str
    commit: str
    prefix: str
    folder: str
    version: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """The archive that the registry has now, or the error."""

    archive: str = ""
    kind: str = ""
    text: str = ""
    broken: bool = False


def apply_one(cluster: Cluster, order: Order) -> Outcome:
    """Applies the job of a folder atomically; FencedError when another follower has taken over."""
    trees = job_folders.commit_trees(Path(order.copy), order.commit, order.prefix, order.url)
    try:
        tree = trees[order.folder]
        if not isinstance(tree, JobTree):
            raise tree
        with job_folders.validated([tree]) as (job,):
            change = applying.prepare_one(cluster, job, [job.spec, *_others(trees, order.folder)])
            guard = RepoNodes(cluster.registry).guard(order.version)
            applying.perform(cluster, change, [guard])
    except (JobFileErrors, JobFileRefused, BadInputError) as error:
        return Outcome(kind=type(error).__name__, text=str(error), broken=True)
    return Outcome(archive=change.entry.archive)


def _others(trees: dict[str, JobTree | BadInputError], folder: str) -> list[JobSpec]:
    """The specs of the commit's other jobs, without their code and without broken ones."""
    found = []
    for name, tree in trees.items():
        if name != folder and isinstance(tree, JobTree):
            try:
                with job_folders.validated([tree]) as (job,):
                    found.append(job.spec)
            except (JobFileErrors, JobFileRefused):
                continue
    return found


def main() -> None:
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    signal.alarm(round(APPLY_S) + 5)  # if the follower is no longer there to end it
    asked = json.load(sys.stdin)
    order, answer = Order(**asked["order"]), Path(asked["answer"])
    try:
        with connecting.connected(Deployment.model_validate(asked["deployment"])) as cluster:
            outcome = apply_one(cluster, order)
    except PerseidError as error:
        outcome = Outcome(kind=type(error).__name__, text=str(error))
    fresh = answer.with_suffix(".part")
    fresh.write_text(json.dumps(asdict(outcome)))
    fresh.replace(answer)
    # No threads of Kafka clients or of the job's code are needed any more.
    logging.shutdown()
    os._exit(0)


if __name__ == "__main__":
    main()
