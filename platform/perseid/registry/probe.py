"""Checks a ZooKeeper for diagnosis: its clock, and who may write there."""

from __future__ import annotations

import time
from dataclasses import dataclass

from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from perseid.errors import RetryableError
from perseid.records.access import Access
from perseid.registry.zookeeper import is_open_to_all, new_client


@dataclass(frozen=True, slots=True)
class Probed:
    """`ahead_s`: its clock minus ours, at the middle of the `asked_s` that the request took.

    `open_to_all`: any client may change the nodes below the deployment's root.
    """

    ahead_s: float
    asked_s: float
    open_to_all: bool


def look(hosts: str, root: str, session_s: float, timeout_s: float, access: Access) -> Probed:
    """Opens a session of its own and makes a node, which it deletes.

    RetryableError when ZooKeeper does not answer.
    """
    client = new_client(hosts, session_s, access)
    try:
        client.start(timeout=timeout_s)
        client.ensure_path(root)
        began_s, ours_s = time.monotonic(), time.time()
        path, stat = client.create(
            f"{root}/probe-", ephemeral=True, sequence=True, include_data=True
        )
        asked_s = time.monotonic() - began_s
        client.delete(path)
        open_to_all = is_open_to_all(client, root)
    except (KazooException, KazooTimeoutError) as error:
        raise RetryableError(
            f"ZooKeeper at {hosts} did not answer within {timeout_s:g} s: "
            f"{error or type(error).__name__}"
        ) from error
    finally:
        client.stop()
        client.close()
    return Probed(stat.ctime / 1000 - (ours_s + asked_s / 2), asked_s, open_to_all)
