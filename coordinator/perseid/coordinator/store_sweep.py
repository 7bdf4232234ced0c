"""Removes unneeded files from the checkpoint store: the leader sweeps it once an hour.

`checkpoints` deletes a checkpoint that is no longer kept when a newer one is complete. The sweep
deletes the rest: archives of revisions that neither a job nor its audit horizon has, files of a job
that was since started from scratch, and files that a killed writer did not finish. Files younger
than a day stay: an apply may be about to name them.

A deployment does not know what another one needs. So each has a file of its own in the store,
written again at every sweep, and while another deployment's file exists nothing is deleted. An
empty ZooKeeper that replaces a lost one is another deployment: files stay that a backup without
copies needs.
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
GONE_MS = 30 * 86_400_000  # a deployment that has not swept for so long counts as gone


@dataclass(frozen=True, slots=True)
class Named:
    """What the registry names: archives by their hash, and the UUIDs of each job."""

    archives: frozenset[str]
    uuids: Mapping[str, frozenset[str]]


def named(registry: Registry) -> Named:
    """Raises when an entry cannot be read, because then what it names is unknown."""
    archives, uuids = set(), {}
    for name, entry in registry.jobs().items():
        plan, pointers = registry.plan(name), registry.pointers(name)
        archives |= {entry.archive, *([plan.archive] if plan is not None else [])}
        archives |= set(pointers.archives.values() if pointers is not None else ())
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
    """Paths that may be deleted, from all files of the store with their write times.

    Files of removed jobs stay; `jobs remove --purge` deletes them.
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
    """Deletes unneeded files while this process leads."""

    def __init__(
        self, registry: Registry, store: Store, leads: Callable[[], bool], clock: Clock
    ) -> None:
        super().__init__("store-sweep")
        self._registry, self._store, self._leads, self._clock = registry, store, leads, clock
        self._looked_s: float | None = None

    def _look(self) -> float:
        now_s = self._clock.monotonic_s()
        first = self._looked_s is None  # a new leader has more urgent work
        waited_s = 0.0 if self._looked_s is None else now_s - self._looked_s
        if first or (waited_s >= SWEEP_S and self._leads()):
            self._looked_s, waited_s = now_s, 0.0  # an unreachable store is tried again in an hour
            if first:
                self._announce()
            else:
                self.sweep()
        return max(1.0, SWEEP_S - waited_s)

    def sweep(self) -> int:
        """Returns how many files it has deleted."""
        own = self._announce()
        there = self._store.written_ms()
        now_ms = there.get(own, 0)  # by the store's clock, like all these times
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
            # It may have been written again meanwhile, by an apply.
            if self._store.written_ms(path) == {path: there[path]}:
                self._store.delete(path)
                deleted += 1
        if deleted:
            _log.info(
                "%d files of the checkpoint store that no checkpoint needs are deleted", deleted
            )
        return deleted

    def _announce(self) -> str:
        """Records in the store that this deployment uses it; returns the file's path."""
        path = user_path(self._registry.deployment_id())
        self._store.write(path, [b"used by the perseid deployment of this id\n"])
        return path
