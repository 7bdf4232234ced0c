"""`Coordination` on a real ZooKeeper through kazoo.

Only kazoo's connection, requests, retries and one-shot watches are used, none of its recipes. Every
request has a timeout, because kazoo would wait without limit while the connection is suspended, and
the results of every transaction are inspected, because kazoo returns failures instead of raising. A
read is retried when its connection or session ended; a write never is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.client import KazooClient, KazooState, TransactionRequest
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    InvalidACLError,
    KazooException,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, Permissions

from perseid.errors import RefusedError, RetryableError
from perseid.records.access import SYSTEM, Access
from perseid.registry.addresses import CurrentAddresses
from perseid.registry.port import (
    Check,
    ConflictError,
    Create,
    Delete,
    Node,
    SessionState,
    Set,
    UnknownOutcomeError,
    Write,
)

_log = logging.getLogger(__name__)

_CHANGES = Permissions.WRITE | Permissions.CREATE | Permissions.DELETE | Permissions.ADMIN

_CONFLICTS = (
    BadVersionError, NodeExistsError, NoNodeError, NotEmptyError, NoChildrenForEphemeralsError
)  # fmt: skip
_STATES = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.LOST,
}


class KazooCoordination:
    """One session. `root` is prepended to every path and created if it does not exist."""

    def __init__(
        self, hosts: str, root: str, session_s: float, request_timeout_s: float | None = None,
        access: Access | None = None,
    ) -> None:  # fmt: skip
        self.hosts = hosts
        self._access = access or Access(part="ZOOKEEPER")
        self._root = root.rstrip("/")
        self._timeout_s = request_timeout_s or session_s
        self._watches: list[_StandingWatch] = []
        self._client = new_client(
            hosts, session_s, self._access,
            connection_retry={"max_tries": -1, "delay": 0.05, "backoff": 1.5, "max_delay": 0.5},
        )  # fmt: skip

    def start(self, timeout_s: float) -> None:
        """Connects and makes the root.

        Raises:
            RetryableError: no answer; it names the hosts.
            RefusedError: another user made the root, or others could change the nodes below it.
        """
        try:
            self._client.start(timeout=timeout_s)
            self._client.add_listener(self._reconnected)
            self._client.ensure_path(self._root or "/")
            open_to_all = self._access.known and is_open_to_all(self._client, self._root)
        except (NoAuthError, AuthFailedError, InvalidACLError) as error:
            self.close()
            raise RefusedError(
                f"ZooKeeper at {self.hosts} does not let us in at {self._root or '/'} "
                f"({type(error).__name__}): is {self._access.variable('user')} who made it, and "
                "its password right?"
            ) from None
        except (KazooException, KazooTimeoutError) as error:
            self.close()
            raise RetryableError(
                f"ZooKeeper at {self.hosts} did not answer within {timeout_s:g} s: "
                f"{error or type(error).__name__}; see `perseid status`"
            ) from error
        if open_to_all:
            self.close()
            raise RefusedError(
                f"ZooKeeper at {self.hosts}: everybody may change {self._root}, which was made "
                "before there was a user; stop the deployment and type in zkCli.sh, as that user: "
                f"setAcl -R {self._root} auth::cdrwa"
            )

    def get(self, path: str) -> Node | None:
        try:
            data, stat = self._ask(self._client.get_async, path)
        except NoNodeError:
            return None
        owner = stat.ephemeralOwner
        mine = owner != 0 and owner == (self._client.client_id or (0,))[0]
        return Node(data, stat.version, owner != 0, mine)

    def children(self, path: str) -> tuple[str, ...]:
        try:
            return tuple(sorted(self._ask(self._client.get_children_async, path)))
        except NoNodeError:
            return ()

    def write(self, *writes: Write) -> None:
        transaction = self._client.transaction()
        for write in writes:
            self._add(transaction, write)
        try:
            results = transaction.commit_async().get(timeout=self._timeout_s)
        except (KazooException, KazooTimeoutError) as error:
            raise UnknownOutcomeError(
                f"ZooKeeper did not confirm a write of {_names(writes)}: {type(error).__name__}"
            ) from error
        _inspect(writes, results)

    def watch(self, path: str, callback: Callable[[], None]) -> None:
        watch = _StandingWatch(self._client, self._root + path, callback)
        self._watches.append(watch)
        watch.arm()

    def on_session(self, callback: Callable[[SessionState], None]) -> None:
        self._client.add_listener(lambda state: callback(_STATES[state]))

    def close(self) -> None:
        try:
            self._client.stop()
            self._client.close()
        except (KazooException, KazooTimeoutError):
            _log.debug("the session did not end cleanly", exc_info=True)

    def _reconnected(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            for watch in list(self._watches):
                watch.arm()

    def _ask(self, request: Callable[[str], Any], path: str) -> Any:
        again = KazooRetry(max_tries=-1, delay=0.05, max_delay=0.5, deadline=self._timeout_s)
        try:
            return again(lambda: request(self._root + path).get(timeout=self._timeout_s))
        except NoNodeError:
            raise
        except NoAuthError:
            raise _denied(path) from None
        except (KazooException, KazooTimeoutError) as error:
            raise RetryableError(
                f"ZooKeeper did not answer a read of {path}: {type(error).__name__}"
            ) from error

    def _add(self, transaction: TransactionRequest, write: Write) -> None:
        path = self._root + write.path
        match write:
            case Create(data=data, ephemeral=ephemeral):
                transaction.create(path, data, ephemeral=ephemeral)
            case Set(data=data, version=version):
                transaction.set_data(path, data, version)
            case Delete(version=version):
                transaction.delete(path, version)
            case Check(version=version):
                transaction.check(path, version)


class _StandingWatch:
    """Re-arms kazoo's one-shot watches before each call of the callback, so no change is missed."""

    def __init__(self, client: KazooClient, path: str, callback: Callable[[], None]) -> None:
        self._client = client
        self._path = path
        self._callback = callback

    def arm(self) -> None:
        # Requests are answered in order: when the second is, the first is armed, too. kazoo stores
        # watchers in a set, so arming twice does not call twice.
        self._client.exists_async(self._path, watch=self._fired)
        self._client.get_children_async(self._path, watch=self._fired).rawlink(self._armed)

    def _fired(self, event: Any) -> None:
        if event.type != "NONE":  # NONE: the connection is gone; reconnecting arms again
            self.arm()

    def _armed(self, result: Any) -> None:
        if result.successful() or isinstance(result.exception, NoNodeError):
            self._callback()


def _inspect(writes: Sequence[Write], results: Sequence[Any]) -> None:
    """Raises for the operation that failed; the others only report that they were rolled back."""
    for write, result in zip(writes, results, strict=True):
        if isinstance(result, _CONFLICTS):
            text = f"{type(write).__name__} {write.path}: {type(result).__name__}"
            raise ConflictError(text, write.path)
        if isinstance(result, NoAuthError):
            raise _denied(write.path)
    for write, result in zip(writes, results, strict=True):
        if isinstance(result, (RolledBackError, RuntimeInconsistency)):
            continue
        if isinstance(result, Exception):
            raise UnknownOutcomeError(f"{type(write).__name__} {write.path}: {result!r}")
    if any(isinstance(result, Exception) for result in results):
        raise UnknownOutcomeError(f"the write of {_names(writes)} was rolled back: {results!r}")


def _denied(path: str) -> RefusedError:
    return RefusedError(
        f"ZooKeeper denies access to {path}: it belongs to another user than PERSEID_ZOOKEEPER_USER"
    )


def _names(writes: Sequence[Write]) -> str:
    return ", ".join(write.path for write in writes)


def new_client(hosts: str, session_s: float, access: Access, **over: Any) -> KazooClient:
    """A client that is not connected yet.

    Nodes that it makes belong to its user alone; without a user any client may change them (the
    embedded ZooKeeper listens on loopback only). With TLS the server's name is verified, which
    kazoo omits.
    """
    access.check_files()
    auth = [("digest", f"{access.user}:{access.password()}")] if access.user is not None else []
    return KazooClient(
        hosts=hosts, timeout=session_s, logger=quiet_logger(), auth_data=auth,
        handler=CurrentAddresses(session_s / (hosts.count(",") + 1)),
        default_acl=CREATOR_ALL_ACL if access.known else OPEN_ACL_UNSAFE,
        use_ssl=access.encrypted, verify_certs=True, check_hostname=access.encrypted,
        ca=None if access.ca == SYSTEM else access.ca, certfile=access.cert, keyfile=access.key,
        **over,
    )  # fmt: skip


def is_open_to_all(client: KazooClient, path: str) -> bool:
    """Whether any client of the server may change the nodes below `path`."""
    rights, _ = client.get_acls(path)
    return any(r.id.scheme == "world" and r.perms & _CHANGES for r in rights)


def quiet_logger() -> logging.Logger:
    """A quiet logger: by default kazoo logs each reconnection attempt with a traceback."""
    logger = logging.getLogger("perseid.registry.kazoo")
    logger.setLevel(logging.ERROR)
    return logger
