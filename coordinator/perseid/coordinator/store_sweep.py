"""The checkpoint store keeps no files that nobody needs: once an hour the leader looks.

Checkpoints that are no longer kept go when a newer one is complete (`checkpoints`). Left over are
archives of revisions that no job has any more, all of a job that was started from scratch since,
and files that a writer did not finish, because it was killed. What is younger than a day stays: a
job may be about to be applied with it.

What another deployment needs nobody here knows. So each has a file of its own in the store, written
anew at every look, and while there is one of another nothing is deleted. An empty ZooKeeper in
place of one that was lost is another deployment: what a backup without copies needs stays.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from perseid.clocks import Clock
from perseid.coordinator.watching import Watcher
from perseid.jobs.model.trees import ARCHIVES, archive_path
from perseid.registry import Registry
from perseid.state.durability.checkpoint import JOBS, job_folder
from perseid.state.durability.store import Store, is_unfinished

_log = logging.getLogger(__name__)

SWEEP_S = 3600.0
YOUNG_MS = 86_400_000
USERS = "deployments"  # folder of the deployments' files in the store
GONE_MS = 30 * 86_400_000  # a deployment that has not looked for so long is no more


@dataclass(frozen=True, slots=True)
class Named:
    """What the registry names: archives by their hash, and by job the UUIDs that it has."""

    archives: frozenset[str]
    uuids: Mapping[str, frozenset[str]]


def named(registry: Registry) -> Named:
    """Raises when one entry cannot be read: then nobody knows what it names."""
    archives, uuids = set(), {}
    for name, entry in registry.jobs().items():
        plan, pointers = registry.plan(name), registry.pointers(name)
        archives |= {entry.archive, *([plan.archive] if plan is not None else [])}
        uuids[name] = frozenset({
            entry.uuid, *([plan.job_uuid] if plan is not None else []),
            *([pointers.job_uuid] if pointers is not None else []),
        })  # fmt: skip
    return Named(frozenset(archives), uuids)


def user_path(deployment: str) -> str:
    return f"{USERS}/{deployment}"


def others(written_ms: Mapping[str, int], own: str, now_ms: int) -> list[str]:
    """The files of other deployments that use the store."""
    return [
        path for path, at_ms in sorted(written_ms.items())
        if path.startswith(f"{USERS}/") and path != own and now_ms - at_ms < GONE_MS
        and not is_unfinished(path)
    ]  # fmt: skip


def unneeded(written_ms: Mapping[str, int], needs: Named, now_ms: int) -> Iterator[str]:
    """Paths of files that may go, of all in the store with the time when each was written.

    Not those of jobs that were removed: `jobs remove --purge` takes them away.
    """
    archives = {archive_path(archive) for archive in needs.archives}
    for path, at_ms in sorted(written_ms.items()):
        if now_ms - at_ms < YOUNG_MS:
            continue
        top, _, rest = path.partition("/")
        if is_unfinished(path) or top == USERS or (top == ARCHIVES and path not in archives):
            yield path
        elif top == JOBS:
            job, _, rest = rest.partition("/")
            uuid = rest.partition("/")[0]
            if job in needs.uuids and uuid not in needs.uuids[job]:
                assert path.startswith(job_folder(job, uuid))
                yield path


class StoreSweeper(Watcher):
    """Deletes them, while this process leads."""

    def __init__(
        self, registry: Registry, store: Store, leads: Callable[[], bool], clock: Clock
    ) -> None:
        super().__init__("store-sweep")
        self._registry, self._store, self._leads, self._clock = registry, store, leads, clock
        self._looked_s: float | None = None

    def _look(self) -> float:
        now_s = self._clock.monotonic_s()
        first = self._looked_s is None  # a leader has other things to do first
        waited_s = 0.0 if self._looked_s is None else now_s - self._looked_s
        if first or (waited_s >= SWEEP_S and self._leads()):
            self._looked_s, waited_s = now_s, 0.0  # a store that is away is looked at in an hour
            if first:
                self._announce()
            else:
                self.sweep()
        return max(1.0, SWEEP_S - waited_s)

    def sweep(self) -> int:
        """How many files it has deleted."""
        own = self._announce()
        there = self._store.written_ms()
        now_ms = there.get(own, 0)  # by the clock of the store, as all these times are
        foreign = others(there, own, now_ms)
        if foreign:
            _log.warning(
                "nothing is deleted from the checkpoint store: another deployment uses it, or did "
                "in the last %d days; give each a folder of its own, or delete %s there if that "
                "deployment is no more", GONE_MS // 86_400_000, foreign[0],
            )  # fmt: skip
            return 0
        deleted = 0
        for path in unneeded(there, named(self._registry), now_ms):
            # Somebody may have written it once more meanwhile, to apply it.
            if self._store.written_ms(path) == {path: there[path]}:
                self._store.delete(path)
                deleted += 1
        if deleted:
            _log.info("%d files of the checkpoint store that nobody needs are deleted", deleted)
        return deleted

    def _announce(self) -> str:
        """Says that this deployment uses the store; its file there."""
        path = user_path(self._registry.deployment_id())
        self._store.write(path, [b"used by the perseid deployment of this id\n"])
        return path
