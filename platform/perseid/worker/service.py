"""The worker process: registers, watches the plans, and runs their fragments.

Plans are the only commands. The loop compares the plans in ZooKeeper with the running fragments: an
assignment that names this incarnation gets a fragment; one without its assignment is stopped.

When the ZooKeeper session is lost, another worker may own all jobs: the process ends at once and
its supervisor starts a new incarnation.
"""

from __future__ import annotations

import logging
import math
import os
import shutil
import signal
import socket
import threading
import uuid
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from perseid.clocks import Clock, SystemClock
from perseid.errors import DamagedFile, RetryableError
from perseid.jobs.environments.installing import Collector, Environments
from perseid.records import CheckpointPointer, Deployment, Plan, WorkerInfo, crashpoints
from perseid.records.version import this_build
from perseid.registry import Registry, SessionState, versions
from perseid.worker.audit_runs import AuditRuns
from perseid.worker.fragment import Fragment
from perseid.worker.fragments import Fragments
from perseid.worker.leaving import Leaving, leave
from perseid.worker.machine import MachineWatch
from perseid.worker.process.priority import set_share
from perseid.worker.removed_jobs import RemovedJobs
from perseid.worker.spark.session import local_cores, open_session
from perseid.worker.spark.warm import warm_up, warm_up_queries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("perseid.worker")
EXIT_SESSION_LOST = 4  # the supervisor starts a new incarnation
CONNECT_S = 60.0  # ZooKeeper may be starting, too
ALIVE = "alive"  # file whose mtime is the last read of the plans: for health checks
IDLE_NICE = 10  # of a worker that has run no fragment (decisions/0017)
IDLE_S = 3.0  # without a fragment; the leader places a job that waits sooner
LOOK_S = 1.0  # plans are read this often even without a change, in case a watch was lost


class WorkerService:
    """One incarnation of a worker."""

    def __init__(
        self,
        deployment: Deployment,
        worker_id: str,
        cache: Path,
        scratch: Path,
        clock: Clock | None = None,
        leaving: Leaving | None = None,
    ) -> None:
        self.deployment = deployment
        self.worker_id = worker_id
        self.incarnation = f"{worker_id}-{uuid.uuid4().hex[:12]}"
        self.cache = cache
        self.scratch = scratch
        self.clock = clock or SystemClock()
        self.leaving = leaving or Leaving()
        self._changed = threading.Event()
        self._stopping = threading.Event()
        self._damaged: dict[str, str] = {}  # jobs whose entry or plan cannot be read
        self._machine = MachineWatch()
        self._low_priority = False
        self._environments = Collector(Environments.of(deployment), cache)
        self._removed = RemovedJobs(deployment)

    def run(self) -> None:
        """Runs until SIGTERM, then leaves; raises errors that it cannot handle."""
        os.environ[crashpoints.DRIVER_PID] = str(os.getpid())  # inherited by the JVM's children
        signal.signal(signal.SIGTERM, lambda *_: self._stop())
        self._admit()
        self._low_priority = set_share(IDLE_NICE)
        shutil.rmtree(self.scratch, ignore_errors=True)  # left by a process that was killed
        spark = open_session(
            self.deployment.master,
            self.deployment.cores,
            f"perseid-{self.incarnation}",
            self.scratch / "spark",
            os.environ.get("PERSEID_EVENT_LOG"),
            self.deployment.spark,
        )
        opened_s = self.clock.monotonic_s()
        warm_up(spark)
        log.info("warm in %.1f s", self.clock.monotonic_s() - opened_s)
        registry = Registry.connect(self.deployment, CONNECT_S)
        registry.on_session(self._session_changed)
        registry.watch(self._changed.set)
        fragments = Fragments(partial(self._started, spark, registry), self._changed.set)
        audits = AuditRuns(self.deployment, registry, self.incarnation, self.clock)
        me = self._info(spark)
        registry.register_worker(me)
        log.info("worker %s is ready", self.incarnation)
        self.scratch.mkdir(parents=True, exist_ok=True)
        alive = self.scratch / ALIVE
        warms_s = self.clock.monotonic_s() + IDLE_S
        while not self._stopping.is_set():
            try:
                self._reconcile(registry, fragments)
                alive.touch()
                audits.look()
            except RetryableError as error:
                log.warning("plans cannot be read now: %s", error)
            warms_s = self._warm_queries(spark, fragments, warms_s)
            self._changed.wait(LOOK_S)
            self._changed.clear()
        audits.stop()
        leave(registry, me, fragments, self.leaving, self.clock)
        registry.close()
        spark.stop()

    def _admit(self) -> None:
        """Before the JVM starts: RefusedError when this version must not take part."""
        with closing(Registry.connect(self.deployment, CONNECT_S)) as registry:
            versions.admit(registry, self.worker_id, this_build())

    def _warm_queries(self, spark: SparkSession, fragments: Fragments, at_s: float) -> float:
        """Warms up queries if nothing runs at `at_s`; when to ask again, infinity for never.

        A fragment that runs has begun the first query itself.
        """
        if fragments.running():
            return math.inf
        if self.clock.monotonic_s() < at_s:
            return at_s
        given = spark, self.scratch / "warm-up"
        threading.Thread(target=warm_up_queries, args=given, name="warm-up", daemon=True).start()
        return math.inf

    def _stop(self) -> None:
        self._stopping.set()
        self._changed.set()

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.LOST and not self._stopping.is_set():
            log.error("the ZooKeeper session of %s is lost: it may be replaced", self.incarnation)
            os._exit(EXIT_SESSION_LOST)

    def _reconcile(self, registry: Registry, fragments: Fragments) -> None:
        seen = registry.look()
        self._note_damage(seen.damaged)
        mine = {n: p.for_worker(self.incarnation) for n, p in seen.plans.items()}
        # The leader knows a damaged plan, and writes it again when it changes.
        fragments.follow(mine, unknown=seen.damaged)
        self._note_checkpoints(registry, fragments)
        if seen.damaged:
            return  # without its entry, a damaged job would look removed
        archives = {entry.archive for entry in seen.entries.values()}
        archives |= {plan.archive for plan in seen.plans.values()}
        self._environments.see(archives, self.clock.monotonic_s())
        known = {entry.uuid for entry in seen.entries.values()}
        known |= {plan.job_uuid for plan in seen.plans.values()}
        self._removed.see(known, self.clock.monotonic_s())

    def _note_checkpoints(self, registry: Registry, fragments: Fragments) -> None:
        found: dict[str, tuple[CheckpointPointer, ...]] = {}  # by job UUID
        for fragment in fragments.running().values():
            plan = fragment.plan
            with suppress(DamagedFile):  # a checkpoint builds on the last one that is known
                if plan.job_uuid not in found:
                    found[plan.job_uuid] = _checkpoints(registry, plan)
                fragment.pointers = found[plan.job_uuid]

    def _note_damage(self, damaged: dict[str, str]) -> None:
        for name, text in damaged.items():
            if self._damaged.get(name) != text:
                log.error("job %s: %s; what runs of it continues, nothing is begun", name, text)
        self._damaged = damaged

    def _started(self, spark: SparkSession, registry: Registry, plan: Plan) -> Fragment:
        self._removed.begins(plan.job_uuid)
        # Each fragment has a session of its own, which holds temporary views and settings.
        session = spark.newSession()
        fragment = Fragment(
            session, self.deployment, plan, self.incarnation, self.cache, self.scratch,
            self._machine, partial(_checkpoints, registry, plan),
        )  # fmt: skip
        fragment.start()
        if self._low_priority:  # the fragment does not wait for it
            self._low_priority = not set_share(0)
        return fragment

    def _info(self, spark: SparkSession) -> WorkerInfo:
        master, build = spark.sparkContext.master or "", this_build()
        return WorkerInfo(
            id=self.worker_id,
            incarnation=self.incarnation,
            host=socket.gethostname(),
            pid=os.getpid(),
            supervisor_pid=int(os.environ.get("PERSEID_SUPERVISOR_PID", os.getppid())),
            cores=local_cores(master) or spark.sparkContext.defaultParallelism,
            master=master,
            started_ms=self.clock.wall_ms(),
            version=build.version,
            protocol=build.protocol,
        )


def _checkpoints(registry: Registry, plan: Plan) -> tuple[CheckpointPointer, ...]:
    """The complete checkpoints of the plan's job, newest first."""
    found = registry.pointers(plan.job)
    return found.pointers if found is not None and found.job_uuid == plan.job_uuid else ()
