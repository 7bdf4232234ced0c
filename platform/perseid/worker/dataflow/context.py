"""What every task of a fragment knows: constant while it runs, sent with its stages."""

from __future__ import annotations

import importlib
import secrets
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path

from perseid.jobs.environments.installing import Environments
from perseid.jobs.model.layout import Layout
from perseid.jobs.model.trees import open_archive
from perseid.records import MAIN, WHOLE, Deployment
from perseid.records.access import Brokers
from perseid.state.durability.owners import owner_directory, owner_name, replica_of
from perseid.topics.records import Token

SINGLE_TASK_RECORDS_MAX = 20_000  # a smaller epoch is one task: more tasks would cost more


@dataclass(frozen=True)
class FragmentContext:
    """One job's fragment under one plan. `folder` is the unpacked archive on the driver's host.

    `layout`: its own operator partitions only. `fragment` and `split`: those of its assignment;
    with a split, its rows come and go by buffer topics (`perseid.engine.levels`). `log`: which copy
    of the state logs it has. `generation`: under which its life began; an epoch's order has the one
    under which it is committed, since a replica may have become the primary.
    `owner` names the directory of the state logs: generation and incarnation.
    `lanes`: number of concurrent tasks on a local master, where all of them see the same state
    logs; 0 where each operator partition has to stay in its own process.
    `one_task_each`: whether a stage must have one task for each operator partition, since an SQL
    operator after it distributes its rows by task. The distribution must not depend on the worker's
    number of cores: a re-run may find half of the writers' partitions committed.
    `rescaled`: whether the plan's initial state was distributed by key.
    `environment`: the folder of the job's own packages, the same on every host; "" without.
    `outputs`: of an audit, and of a gate with approved differences, the folder in which its sinks
    keep what they would send; else "".
    `token`: a secret by which the driver finds a task's error in Spark's text (`errors.carried`).
    """

    deployment: Deployment
    job: str
    job_uuid: str
    generation: int
    incarnation: str
    revision: str
    archive: str
    folder: str
    layout: Layout
    base_epoch: int
    lanes: int
    one_task_each: bool
    rescaled: bool
    environment: str = ""
    fragment: str = WHOLE
    split: int | None = None
    log: str = MAIN
    outputs: str = ""
    token: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)

    @property
    def owner(self) -> str:
        return owner_name(self.generation, self.incarnation)

    @property
    def owned(self) -> str:
        """The directory of the owner's state logs."""
        return owner_directory(
            self.deployment.state, self.job_uuid, self.layout.number, self.owner, self.replica
        )

    @property
    def replica(self) -> str:
        """The copy of the job's state whose logs it owns: each fragment has a directory."""
        return replica_of(self.fragment, self.log)

    @property
    def brokers(self) -> Brokers:
        """The brokers, with the job's principal."""
        return self.deployment.brokers(self.job)

    @property
    def job_folder(self) -> Path:
        """The unpacked archive, with its packages installed.

        An executor on another host than the driver unpacks and installs first.
        """
        folder = _unpacked(self.deployment.store, self.archive, self.folder)
        if self.environment and not self.lanes:
            _hold(Path(self.environment), folder)
        return folder

    def is_single_task(self, token: Token) -> bool:
        """Whether the token's epoch runs as one task, without a shuffle."""
        return self.lanes > 0 and not self.one_task_each and is_small(token)

    def width(self, level: int, *, single_task: bool) -> int:
        """The number of tasks of the stage at `level`; 1 after the last level."""
        tasks = max(1, len(self.layout.level(level)))
        if single_task:
            return 1
        return tasks if self.one_task_each else min(tasks, self.lanes or tasks)


@lru_cache(maxsize=8)
def _unpacked(store: str, archive: str, folder: str) -> Path:
    path = Path(folder)
    return path if path.is_dir() else open_archive(store, archive, path.parent)


_held = ExitStack()  # environments of executors; their locks end with the process


@cache  # without a size limit: an evicted entry would be locked again
def _hold(site: Path, folder: Path) -> None:
    """Creates the environment on this host if necessary; held until this process ends."""
    _held.enter_context(Environments(site.parents[1]).lease(folder))
    importlib.invalidate_caches()  # its folder is in sys.path already


def is_small(token: Token) -> bool:
    """Whether the epoch has too few records for more than one task.

    Depends on the token alone, so that rows go to the same writers on every worker.
    """
    return token.records < SINGLE_TASK_RECORDS_MAX
