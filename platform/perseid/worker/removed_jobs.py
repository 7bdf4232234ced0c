"""Deletes the state logs of removed jobs on this host.

    <state>/jobs/<deployment>/<job uuid>/   mark: a worker of this deployment had the job here
    <state>/<job uuid>/...                  its state logs

Only logs with such a mark are deleted: deployments may share the folder. A job that now runs
elsewhere keeps its logs here, since it may return.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Collection

from perseid.errors import RetryableError
from perseid.records import Deployment
from perseid.state.durability.files import Files, LocalFiles

_log = logging.getLogger(__name__)

FORGET_S = 30.0  # another worker of this host may still be about to stop its fragment


class RemovedJobs:
    """Looks for marks of jobs that no longer exist."""

    def __init__(self, deployment: Deployment, files: Files | None = None) -> None:
        self._files = files or LocalFiles()
        self._state = deployment.state
        identity = f"{deployment.zookeeper} {deployment.chroot}".encode()
        self._marks = f"{self._state}/jobs/{hashlib.sha256(identity).hexdigest()[:16]}"
        self._unknown_since: dict[str, float] = {}

    def begins(self, job_uuid: str) -> None:
        """Marks the job as one of this host, before any of its files exist."""
        try:
            self._files.make_directory(f"{self._marks}/{job_uuid}", parents=True)
        except RetryableError as error:  # its tasks will report it too, as the job's error
            _log.warning("what job %s leaves here will stay: %s", job_uuid, error)

    def see(self, known: Collection[str], now_s: float) -> None:
        """`known`: uuids of all existing jobs. Deletes in a thread, since logs may be gigabytes."""
        due = self.due(known, now_s)
        if due:
            threading.Thread(target=self.collect, args=(due,), daemon=True).start()

    def due(self, known: Collection[str], now_s: float) -> list[str]:
        """Jobs that were unknown at each call for FORGET_S; each is returned once."""
        since = self._unknown_since
        self._unknown_since = {u: since.get(u, now_s) for u in self.unknown(known)}
        due = [u for u, first_s in self._unknown_since.items() if now_s - first_s >= FORGET_S]
        for job_uuid in due:
            del self._unknown_since[job_uuid]
        return due

    def unknown(self, known: Collection[str]) -> list[str]:
        """Jobs with a mark that are not in `known`."""
        try:
            return [job_uuid for job_uuid in self._files.list(self._marks) if job_uuid not in known]
        except FileNotFoundError:
            pass  # no job has been here yet
        except RetryableError as error:
            _log.warning("what removed jobs left here is not looked for now: %s", error)
        return []

    def collect(self, due: Collection[str]) -> None:
        """Deletes the logs, then the mark: after a crash in between, a later call repeats it."""
        for job_uuid in due:
            try:
                self._files.delete(f"{self._state}/{job_uuid}")
                self._files.delete(f"{self._marks}/{job_uuid}")
            except RetryableError as error:
                _log.warning("what job %s left here is not deleted now: %s", job_uuid, error)
                continue
            _log.info("state logs of job %s are deleted: it was removed", job_uuid)
