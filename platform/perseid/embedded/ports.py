"""Loopback ports of a cluster: chosen free once, then kept, so that clients find a restarted part.

If another process has taken a kept port meanwhile, `up` refuses and names the port: a broker on a
new port would silently cut off clients that know the old address.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Set
from contextlib import ExitStack
from pathlib import Path

NAMES = ("kafka", "controller", "zookeeper", "redis", "spark-master", "spark-ui")


def ports(path: Path) -> dict[str, int]:
    """The ports in `path`; missing ones are chosen among the free ones and added."""
    kept: dict[str, int] = json.loads(path.read_text()) if path.is_file() else {}
    missing = [name for name in NAMES if name not in kept]
    if missing:
        kept |= dict(zip(missing, free(len(missing), set(kept.values())), strict=True))
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(kept, indent=2))
        fresh.replace(path)
    return kept


def free(count: int, taken: Set[int] = frozenset()) -> list[int]:
    """Ports without a listener, none of them in `taken`."""
    # Below the ephemeral range: a port there could be given to an outgoing connection while the
    # part that owns it is down, and the part could then not restart.
    found: list[int] = []
    with ExitStack() as held:
        for port in _candidates():
            if len(found) == count:
                return found
            listener = held.enter_context(socket.socket())
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            if port not in taken:
                found.append(port)
    raise RuntimeError("no free loopback port between 10000 and 32000")


def _candidates() -> list[int]:
    import random

    return random.SystemRandom().sample(range(10_000, 32_000), 2_000)
