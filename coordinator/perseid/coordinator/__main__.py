"""One coordinator process: stands by until it can lead, then leads until it loses the leadership.

The process ends when it loses the leadership or its ZooKeeper session; the supervisor then starts a
new one, which stands by. Closing the session properly lets another process lead at once.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import sys
import threading
from pathlib import Path

from perseid import logs
from perseid.clocks import Clock, SystemClock
from perseid.coordinator import token_time
from perseid.coordinator.api.guard import Guard
from perseid.coordinator.api.limits import RateLimit
from perseid.coordinator.api.listening import Listening, add_options, is_loopback, listening
from perseid.coordinator.api.routes import Backend
from perseid.coordinator.api.server import Api, make_app
from perseid.coordinator.api.tokens import TokenFile
from perseid.coordinator.decision_log import files
from perseid.coordinator.decision_log.recorder import Recorder
from perseid.coordinator.loading import Clients, SharedWriter
from perseid.coordinator.performing import StepDown
from perseid.coordinator.service import Ports, Service
from perseid.coordinator.token_time import Now
from perseid.coordinator.view import Look
from perseid.coordinator.watching import PROGRESS_FETCH_MS
from perseid.errors import RefusedError, RetryableError, UsageError, exit_code
from perseid.records import CoordinatorInfo, Deployment, LeaderInfo
from perseid.records.version import this_build
from perseid.registry import Fence, FencedRegistry, Registry, SessionState, lead, versions

_log = logging.getLogger("perseid.coordinator")

STANDBY_LOOK_S = 1.0  # poll interval, in case no watch reports that the leader left
CONNECT_S = 30.0  # ZooKeeper may still be starting


class Coordinator:
    """From standby to leading; `run` returns the process's exit code."""

    def __init__(self, deployment: Deployment, name: str) -> None:
        self._deployment, self._name = deployment, name
        self._clock = SystemClock()
        self._time = token_time.started(Now(self._clock.monotonic_s(), self._clock.wall_ms()))
        self.registry = Registry.connect(deployment, CONNECT_S)
        self._service: Service | None = None
        self._ended = threading.Event()
        self._changed = threading.Event()
        self._above = 0
        self._admitted = False
        self._url = ""

    def run(self, url: str) -> int:
        self._url = url
        self.registry.watch(self._changed.set)
        self.registry.on_session(self._session_changed)
        _log.info("coordinator %s stands by; its API is at %s", self._name, url)
        try:
            while not self._ended.is_set():
                fence = self._try_to_lead()
                if fence is None:
                    self._changed.wait(STANDBY_LOOK_S)
                    self._changed.clear()
                elif not self._lead(fence):
                    return 1
        finally:
            self.registry.close()
        return 0

    def stop(self, reason: str) -> None:
        self._ended.set()
        self._changed.set()
        if self._service is not None:
            self._service.stop(reason)

    def look(self) -> Look | None:
        """What the leader knows; None in standby."""
        service = self._service
        return service.look() if service is not None else None

    def _admit(self) -> None:
        """Registers this process. RefusedError, which ends it, if its version is not admitted."""
        build = this_build()
        versions.admit(self.registry, self._name, build)
        self.registry.register_coordinator(CoordinatorInfo(
            self._name, socket.gethostname(), os.getpid(), self._url, build.version, build.protocol
        ))  # fmt: skip
        self._admitted = True

    def _try_to_lead(self) -> Fence | None:
        try:
            if not self._admitted or self.registry.leader() is None:
                self._admit()  # processes of other versions may have registered since
            return lead(self.registry, self._info, self._above)
        except RetryableError as error:
            _log.warning("%s", error)
            return None

    def _lead(self, fence: Fence) -> bool:
        """Leads; True if it may lead again with a higher epoch, False if the process must end."""
        logs.bind_process(coordinator_epoch=fence.epoch)
        _log.info("coordinator %s leads with epoch %d", self._name, fence.epoch)
        folder = Path(self._deployment.logs) / files.FOLDER / self._name
        self._service = Service(
            make_ports(self._deployment, self.registry, self._clock),
            FencedRegistry(self.registry, fence), self._info(fence.epoch),
            self._deployment.zookeeper_session_s, self._time,
            Recorder.in_folder(folder, fence.epoch, this_build().version, self._clock),
        )  # fmt: skip
        try:
            self._service.run()
        except StepDown as end:
            _log.info("coordinator %s steps down: %s", self._name, end.reason)
            self._above = end.above or 0
        finally:
            self._service = None
            logs.bind_process(coordinator_epoch=None)
        return self._above > 0 or self._ended.is_set()

    def _info(self, epoch: int) -> LeaderInfo:
        build = this_build()
        return LeaderInfo(self._name, epoch, os.getpid(), self._url, build.version, build.protocol)

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.LOST and self._service is None:
            self.stop("the ZooKeeper session is lost")


def make_ports(deployment: Deployment, registry: Registry, clock: Clock) -> Ports:
    """The real clients. Each thread has its own readers; all threads share one producer."""
    from perseid.state.durability.store import open_store
    from perseid.topics import names
    from perseid.topics.admin import TopicAdmin
    from perseid.topics.groups import KafkaGroupWriter
    from perseid.topics.kafka_transactions import KafkaTransactions
    from perseid.topics.ledger import LedgerReader
    from perseid.topics.log import KafkaLogReader, KafkaLogWriter

    writer = SharedWriter(lambda: KafkaLogWriter(deployment.brokers()))
    transactions = KafkaTransactions(deployment.brokers())
    store = open_store(deployment.store)
    cache = Path(deployment.state) / "archives"

    def new_clients() -> Clients:
        topics = TopicAdmin(deployment.brokers())
        reader = KafkaLogReader(deployment.brokers())
        ledger = LedgerReader(reader, topics)
        return Clients(registry, topics, reader, writer, ledger, transactions, store, cache)

    def new_group(job: str) -> KafkaGroupWriter:
        return KafkaGroupWriter(deployment.brokers(), names.group(job), names.group_id(job))

    def new_reader() -> KafkaLogReader:
        return KafkaLogReader(deployment.brokers(), fetch_wait_ms=PROGRESS_FETCH_MS)

    return Ports(new_clients(), new_clients, new_reader, new_group, clock)


def make_api(deployment: Deployment, coordinator: Coordinator, where: Listening) -> Api:
    """The API of this process; its calls share the coordinator's ZooKeeper session."""
    from perseid.jobs.operations.applying import Cluster
    from perseid.state.durability.store import open_store
    from perseid.topics.admin import TopicAdmin
    from perseid.topics.log import KafkaLogReader

    topics = TopicAdmin(deployment.brokers())
    registry, clock = coordinator.registry, SystemClock()
    back = Backend(
        coordinator.look, registry.leader,
        Cluster(registry, topics, open_store(deployment.store), clock), topics,
        lambda: KafkaLogReader(deployment.brokers()), Path(deployment.state) / "archives",
    )  # fmt: skip
    tokens = TokenFile(where.tokens) if where.tokens is not None else None
    if tokens is not None and where.cert is None and not is_loopback(where.host):
        _log.warning("the API is not encrypted: who listens in on %s can read tokens; give "
                     "--api-cert and --api-key", where.host)  # fmt: skip
    return Api(make_app(back, Guard(tokens, RateLimit(clock.monotonic_s))), where)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="perseid coordinator", description=__doc__)
    parser.add_argument("--deployment", type=Path, required=True, help="the deployment's settings")
    parser.add_argument("--id", required=True, help="this coordinator's name, such as c1")
    logs.add_option(parser)
    add_options(parser)
    options = parser.parse_args(arguments)
    logs.set_up(options.id, options.log_format)
    where = listening(options)  # before any connection is opened
    deployment = Deployment.load(options.deployment)
    coordinator = Coordinator(deployment, options.id)
    api = make_api(deployment, coordinator, where)
    api.start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: coordinator.stop("asked to end"))
    try:
        return coordinator.run(api.url)
    finally:
        api.stop()


def run() -> int:
    """The exit code, as for every command: 2 for a wrong setting, 3 for a refusal."""
    try:
        return main()
    except (UsageError, RefusedError) as error:
        sys.stderr.write(f"perseid: {error}\n")
        return exit_code(error)


if __name__ == "__main__":
    code = run()
    # Kafka's client threads may still wait for an unreachable broker; nothing needs them any more.
    logging.shutdown()
    os._exit(code)
