"""What a job that was removed leaves on this host: its state logs are deleted.

    <state>/jobs/<deployment>/<job uuid>/   a worker of this deployment had the job here
    <state>/<job uuid>/...                  its state logs

Only what such a mark names is deleted: deployments may share the folder. A job that runs elsewhere
keeps its logs here, since it may come back.
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
    """Watches for marks of jobs that nobody knows any more."""

    def __init__(self, deployment: Deployment, files: Files | None = None) -> None:
        self._files = files or LocalFiles()
        self._state = deployment.state
        identity = f"{deployment.zookeeper} {deployment.chroot}".encode()
        self._marks = f"{self._state}/jobs/{hashlib.sha256(identity).hexdigest()[:16]}"
        self._unknown_since: dict[str, float] = {}

    def begins(self, job_uuid: str) -> None:
        """Marks the job as one that has been here, before there is anything of it."""
        try:
            self._files.make_directory(f"{self._marks}/{job_uuid}", parents=True)
        except RetryableError as error:  # its tasks will say so too, as the job's error
            _log.warning("what job %s leaves here will stay: %s", job_uuid, error)

    def see(self, known: Collection[str], now_s: float) -> None:
        """`known`: uuids of all jobs that there are. Deletes in a thread: it may be gigabytes."""
        due = self.due(known, now_s)
        if due:
            threading.Thread(target=self.collect, args=(due,), daemon=True).start()

    def due(self, known: Collection[str], now_s: float) -> list[str]:
        """Those that have been unknown at each look for FORGET_S; they are not named again soon."""
        since = self._unknown_since
        self._unknown_since = {u: since.get(u, now_s) for u in self.unknown(known)}
        due = [u for u, first_s in self._unknown_since.items() if now_s - first_s >= FORGET_S]
        for job_uuid in due:
            del self._unknown_since[job_uuid]
        return due

    def unknown(self, known: Collection[str]) -> list[str]:
        """Those that were here and are not in `known`: a worker may still be about to stop one."""
        try:
            return [job_uuid for job_uuid in self._files.list(self._marks) if job_uuid not in known]
        except FileNotFoundError:
            pass  # no job has been here yet
        except RetryableError as error:
            _log.warning("what removed jobs left here is not looked for now: %s", error)
        return []

    def collect(self, due: Collection[str]) -> None:
        """Deletes the logs, then the mark: who dies in between leaves the mark to the next one."""
        for job_uuid in due:
            try:
                self._files.delete(f"{self._state}/{job_uuid}")
                self._files.delete(f"{self._marks}/{job_uuid}")
            except RetryableError as error:
                _log.warning("what job %s left here is not deleted now: %s", job_uuid, error)
                continue
            _log.info("state logs of job %s are deleted: it was removed", job_uuid)
