"""Looks at the repository periodically, and applies what has changed: the shell.

A look, in this order:
1. The ref is fetched and resolved once; all later steps use that commit.
2. `deciding` determines whether the commit is accepted, and what to do.
3. The record becomes unfinished. Its new version fences all writes of this look.
4. Each job is applied by itself. A failure leaves the running job unchanged.
5. The record gets the outcome of each job.

A crash between 3 and 5 leaves it unfinished, and the next look repeats everything: what is applied
already is found unchanged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from perseid.clocks import Clock
from perseid.errors import FencedError, PerseidError, RefusedError, RetryableError
from perseid.jobs.following import deciding
from perseid.jobs.following.deciding import Found
from perseid.jobs.following.one_job import Order, Outcome
from perseid.jobs.following.remote import Remote
from perseid.jobs.following.settings import Settings
from perseid.jobs.operations import steering
from perseid.records import crashpoints
from perseid.records.repository import RepoFault, RepoJob, RepoRecord
from perseid.registry.facade import Registry, Stored
from perseid.registry.repository import RepoNodes

_log = logging.getLogger("perseid.follow")

Apply = Callable[[Order], Outcome]


class Follower:
    """Does one look after the other; `apply` applies one job of a commit."""

    def __init__(
        self, settings: Settings, registry: Registry, remote: Remote, apply: Apply, clock: Clock
    ) -> None:
        self._settings, self._registry, self._remote = settings, registry, remote
        self._nodes, self._apply, self._clock = RepoNodes(registry), apply, clock

    def look(self) -> RepoRecord:
        """Does one look; its result is in the registry when it returns.

        Raises:
            FencedError: another follower looks, and this look has written nothing since.
            RetryableError: ZooKeeper does not answer.
        """
        stored = self._own()
        before = stored.value if stored is not None else None
        try:
            seen = self._remote.look(before.commit if before is not None else "")
        except PerseidError as error:
            unreachable = isinstance(error, RetryableError)
            return self._put(stored, self._failed(before, error, unreachable=unreachable))
        _, accepted = self._nodes.asked()
        signed = self._settings.signers is not None
        fault = deciding.fault(before, seen, accepted, signed=signed)
        if fault is not None:
            refused = replace(self._now(before), state="refused", fault=fault)
            return self._put(stored, replace(refused, seen=seen.commit))
        if deciding.is_settled(before, seen.commit):
            return self._put(stored, replace(self._now(before), state="applied"))
        try:
            found = self._remote.found(seen.commit)
        except PerseidError as error:
            failed = self._failed(before, error, unreachable=False)
            return self._put(stored, replace(failed, seen=seen.commit))
        begun = replace(
            self._now(before), state="applying", seen=seen.commit, unfinished=True,
            rewritten=not seen.follows,
        )  # fmt: skip
        return self._take(stored, begun, found)

    def _take(
        self, stored: Stored[RepoRecord] | None, begun: RepoRecord, found: list[Found]
    ) -> RepoRecord:
        """Applies the changes of the commit."""
        before = stored.value if stored is not None else None
        work = deciding.work(
            before, begun.seen, found, self._registry.jobs(), prune=self._settings.prune
        )
        version = self._nodes.put(begun, stored.version if stored is not None else None)
        by_folder = {one.folder: one for one in found}
        old = {job.folder: job for job in begun.jobs if job.result != "gone"}
        jobs = []
        for folder in work.apply:
            jobs.append(self._applied(by_folder[folder], old.get(folder), begun.seen, version))
            crashpoints.reach("repository.job-done")
        for job in work.remove:
            jobs += self._removed(job, version)
        done = replace(
            begun, state="applied", commit=begun.seen, looked_ms=self._clock.wall_ms(),
            unfinished=False,
            jobs=tuple(sorted([*work.kept, *jobs], key=lambda j: (j.folder, j.job))),
        )  # fmt: skip
        self._nodes.put(done, version)
        for job in done.jobs:
            if job.result != "applied":
                _log.warning("%s: %s: %s", job.job or job.folder, job.result, job.text)
        return done

    def _applied(self, one: Found, old: RepoJob | None, commit: str, version: int) -> RepoJob:
        settings = self._settings
        outcome = self._apply(Order(
            str(self._remote.copy), settings.url, commit, settings.folder, one.folder, version
        ))  # fmt: skip
        if outcome.kind == FencedError.__name__:
            raise FencedError(outcome.text)
        if not outcome.kind:
            _log.info("%s: applied from %s", one.job, commit)
            return RepoJob(one.folder, one.job, "applied", one.tree, commit, outcome.archive)
        if old is None or old.job != one.job:
            old = RepoJob(one.folder, one.job, "broken")
        text = deciding.cut(f"{outcome.kind}: {outcome.text}")
        result: Literal["broken", "refused"] = "broken" if outcome.broken else "refused"
        return replace(old, result=result, tree=one.tree, text=text)

    def _removed(self, job: RepoJob, version: int) -> list[RepoJob]:
        """Removes a job that the repository no longer has; keeps it in the list if that fails."""
        try:
            entry, at = steering.remove(self._registry, self._clock, job.job)
            steering.put(self._registry, entry, at, [self._nodes.guard(version)])
        except steering.UnknownJob:
            return []
        except RefusedError as error:
            return [replace(job, result="gone", text=deciding.cut(str(error)))]
        _log.info("%s: is removed, since the repository has it no more", job.job)
        return []

    def _own(self) -> Stored[RepoRecord] | None:
        """The record, if it is about this repository: the jobs of another one are not ours."""
        stored = self._nodes.record()
        if stored is None:
            return None
        same = (stored.value.url, stored.value.ref) == (self._settings.url, self._settings.ref)
        return stored if same else Stored(self._now(None), stored.version)

    def _now(self, before: RepoRecord | None) -> RepoRecord:
        """The previous record updated for this look, without a fault."""
        settings, now_ms = self._settings, self._clock.wall_ms()
        if before is None:
            return RepoRecord(settings.url, settings.ref, settings.interval_s, "applied", now_ms)
        return replace(before, interval_s=settings.interval_s, looked_ms=now_ms, fault=None)

    def _failed(
        self, before: RepoRecord | None, error: PerseidError, *, unreachable: bool
    ) -> RepoRecord:
        step = "nothing: the jobs run on, and the next look tries again"
        if not unreachable:
            step = "correct the repository, or the settings of `perseid follow`"
        fault = RepoFault(type(error).__name__, deciding.cut(str(error)), step)
        state: Literal["refused", "unreachable"] = "unreachable" if unreachable else "refused"
        return replace(self._now(before), state=state, fault=fault)

    def _put(self, stored: Stored[RepoRecord] | None, record: RepoRecord) -> RepoRecord:
        """Writes a record that leaves all jobs as they are."""
        if record.fault is not None:
            _log.warning("%s: %s", record.state, record.fault.text)
        self._nodes.put(record, stored.version if stored is not None else None)
        return record
