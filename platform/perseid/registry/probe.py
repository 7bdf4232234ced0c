"""What a ZooKeeper says to somebody who looks after it: its clock, and who may write there."""

from __future__ import annotations

import time
from dataclasses import dataclass

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import Permissions

from perseid.errors import RetryableError
from perseid.registry.zookeeper import quiet_logger

_CHANGES = Permissions.WRITE | Permissions.CREATE | Permissions.DELETE | Permissions.ADMIN


@dataclass(frozen=True, slots=True)
class Probed:
    """`ahead_s`: its clock less ours, in the middle of the `asked_s` that the question took.

    `open_to_all`: whoever reaches it may change what is below the deployment's root.
    """

    ahead_s: float
    asked_s: float
    open_to_all: bool


def look(hosts: str, root: str, session_s: float, timeout_s: float) -> Probed:
    """Opens a session of its own and makes a node that goes with it.

    RetryableError when ZooKeeper does not answer.
    """
    client = KazooClient(hosts=hosts, timeout=session_s, logger=quiet_logger())
    try:
        client.start(timeout=timeout_s)
        client.ensure_path(root)
        began_s, ours_s = time.monotonic(), time.time()
        path, stat = client.create(
            f"{root}/probe-", ephemeral=True, sequence=True, include_data=True
        )
        asked_s = time.monotonic() - began_s
        client.delete(path)
        rights, _ = client.get_acls(root)
    except (KazooException, KazooTimeoutError) as error:
        raise RetryableError(
            f"ZooKeeper at {hosts} did not answer within {timeout_s:g} s: "
            f"{error or type(error).__name__}"
        ) from error
    finally:
        client.stop()
        client.close()
    open_to_all = any(r.id.scheme == "world" and r.perms & _CHANGES for r in rights)
    return Probed(stat.ctime / 1000 - (ours_s + asked_s / 2), asked_s, open_to_all)
