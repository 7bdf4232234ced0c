"""Reads the state of an operator from outside, without effect on the running job.

If the state logs of the wanted partitions' primaries are on this host, they are read at the newest
epoch that all of them have. The owners continue meanwhile: they may delete files that a checkpoint
has made unnecessary, or a new owner may rename its directory. The reader then finds files missing
and starts again. If a log is not here, the newest checkpoint is restored into a scratch folder by
the worker's own restore. Logs of replicas are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from perseid.clocks import Clock
from perseid.engine.agreement import RestoreOrder
from perseid.errors import DamagedFile, FencedError, PermanentError, RefusedError, RetryableError
from perseid.jobs.model.layout import Task
from perseid.records import Assignment, CheckpointPointer, Plan
from perseid.state.durability.blob import Identity
from perseid.state.durability.files import Files, LocalFiles
from perseid.state.durability.log import StateLog
from perseid.state.durability.owners import (
    log_directory,
    named_by,
    owner_directory,
    replica_directory,
    replica_of,
)
from perseid.state.primitives.primitive import bind
from perseid.worker.epoch.partition_state import PartitionState
from perseid.worker.recovery.resplit import Share
from perseid.worker.recovery.restore import PartitionRestore

if TYPE_CHECKING:
    from perseid.state.durability.store import Store
    from perseid.state.primitives.primitive import Primitive

TRIES = 20  # attempts to read a log that changes meanwhile
PAUSE_S = 0.1  # pause between them: a takeover renames within a second or two

T = TypeVar("T")
Read = Callable[[int], "dict[str, Primitive]"]


@dataclass(frozen=True)
class Place:
    """The job's plan and checkpoints, as ZooKeeper had them at one moment."""

    plan: Plan
    pointers: tuple[CheckpointPointer, ...]


@dataclass(frozen=True)
class Moment:
    """What is read: the state at the end of `epoch`, from "log" or "checkpoint"."""

    epoch: int
    source: str


@dataclass(frozen=True)
class Inspector:
    """Reads the state of one operator. `root`: folder of the state logs on this host.

    `share`: a partition's share of the operator. `gids`: of its partitions, in their order.
    """

    files: Files
    root: str
    store: Store
    clock: Clock
    operator: str
    share: Callable[[int], Share]
    gids: Sequence[int]

    def look(
        self,
        place: Callable[[], Place],
        partitions: Sequence[int],
        use: Callable[[Moment, Read], T],
        scratch: Path,
    ) -> T:
        """The result of `use`, which gets the moment and a function that reads a partition.

        Raises RefusedError when there is no state yet, PermanentError when no checkpoint is
        readable.
        """
        for _ in range(TRIES):
            found = place()
            try:
                homes = {number: self._home(found.plan, number) for number in partitions}
                owners = {home: self._owners(found.plan, home) for home in homes.values()}
                logs = self._logs(found.plan, homes, owners)
                moment = self._log_moment(found, homes, logs)
                if moment is not None:
                    return use(moment, partial(self._from_logs, logs, moment.epoch))
                if any(home.owner is None or not owners[home] for home in owners):
                    break  # otherwise the present owners may be about to take over these logs
            except (FencedError, DamagedFile, RetryableError):
                pass  # a file, or the directory, was removed during the reading
            self.clock.sleep(PAUSE_S)
        return self._from_checkpoints(place(), use, scratch)

    # From the log -------------------------------------------------------------------------------

    def _home(self, plan: Plan, partition: int) -> Assignment:
        """The fragment that has the partition."""
        gid = self.gids[partition]
        for found in plan.primaries:
            if found.gids is None or gid in found.gids:
                return found
        raise RetryableError(f"the plan of {plan.job} is of another revision by now")

    def _log_moment(
        self, place: Place, homes: Mapping[int, Assignment], logs: dict[int, StateLog]
    ) -> Moment | None:
        """The newest epoch that all logs have; None when this host lacks one of an owner."""
        epochs = [log.last_epoch() for log in logs.values()]
        held = [epoch for epoch in epochs if epoch is not None]
        if not held or len(held) < len(homes):
            return None
        newest = place.pointers[0].epoch if place.pointers else 0
        if min(held) < newest:
            return None  # left by a previous owner, or its owner still restores it
        return Moment(min(held), "log")

    def _logs(
        self, plan: Plan, homes: Mapping[int, Assignment], owners: Mapping[Assignment, list[str]]
    ) -> dict[int, StateLog]:
        """By partition, its owner's log, or the last owner's if it has none now; as far as here."""
        logs = {}
        for partition, home in homes.items():
            here = owners[home]
            last = here[-1] if here else None
            owner = named_by(here, home.owner, home.generation) if home.owner else last
            if owner is None:
                continue
            replica = replica_of(home.fragment, home.log)
            owned = owner_directory(self.root, plan.job_uuid, plan.layout, owner, replica)
            directory = log_directory(owned, self.operator, partition)
            logs[partition] = StateLog(self.files, directory, self._identity(plan, partition))
        return logs

    def _owners(self, plan: Plan, home: Assignment) -> list[str]:
        """Whose logs of the fragment this host has, the newest last."""
        replica = replica_of(home.fragment, home.log)
        directory = replica_directory(self.root, plan.job_uuid, plan.layout, replica)
        try:
            return [name for name in self.files.list(directory) if name.startswith("g")]
        except FileNotFoundError:
            return []

    def _identity(self, plan: Plan, partition: int) -> Identity:
        return Identity(plan.job_uuid, plan.layout, self.operator, partition)

    def _from_logs(
        self, logs: dict[int, StateLog], epoch: int, partition: int
    ) -> dict[str, Primitive]:
        return self._state(partition, logs[partition], epoch)

    def _state(self, partition: int, log: StateLog, epoch: int) -> dict[str, Primitive]:
        operator = self.share(partition).instance()
        state = PartitionState(operator, bind(operator), log)
        state.bring_to(epoch)
        return state.live

    # Checkpoints --------------------------------------------------------------------------------

    def _from_checkpoints(self, place: Place, use: Callable[[Moment, Read], T], scratch: Path) -> T:
        wrong = []
        for pointer in place.pointers:
            try:
                moment = Moment(pointer.epoch, "checkpoint")
                return use(moment, partial(self._restored, place, pointer, scratch))
            except PermanentError as error:
                wrong.append(str(error))
        if wrong:
            raise PermanentError(wrong[-1])
        raise RefusedError(
            f"there is no state of {place.plan.job} to be read: its state log is not on this host "
            f"and no checkpoint is complete; `perseid checkpoint {place.plan.job}` takes one"
        )

    def _restored(
        self, place: Place, pointer: CheckpointPointer, scratch: Path, partition: int
    ) -> dict[str, Primitive]:
        plan, files = place.plan, LocalFiles()
        folder = f"{scratch}/{pointer.epoch}"
        files.make_directory(folder, parents=True)
        identity = self._identity(plan, partition)
        log = StateLog(files, log_directory(folder, self.operator, partition), identity)
        order = RestoreOrder(
            tokens={}, tip_epoch=pointer.epoch, taken_back_below=0, pointers=(pointer,),
            base_epoch=pointer.epoch, base_offset=pointer.token_offset, generation=plan.generation,
        )  # fmt: skip
        task = Task(0, self.operator, partition, 1, stateful=True, ledger=None)
        share = self.share(partition)
        found = PartitionRestore(files, self.store, log, task, identity, share).run(order)
        return self._state(partition, log, found.epoch)
