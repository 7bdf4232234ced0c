"""A peer's processes under perseid's own supervisor: one that dies is started again at once."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from perseid.embedded import lifecycle
from perseid.embedded.cluster import Cluster
from perseid.embedded.identity import send
from perseid.embedded.keeper_lock import revive
from perseid.embedded.paths import Home, state_root
from perseid.embedded.table import ProcessSpec, keeper, write_specs
from perseid.records.marks import mark

KIND = "peer"
_FIRST = f"{KIND}-0"


class Peer:
    """The processes of one peer, and a folder for its state."""

    def __init__(self, data: Path) -> None:
        self._home = Home(data)
        self._cluster = Cluster(data)
        # On tmpfs like perseid's state logs, so that neither side waits for a disk.
        self.state = state_root(data) / "checkpoint"

    def start(self, commands: Sequence[list[str]], environment: dict[str, str]) -> None:
        self._home.make()
        specs = [
            ProcessSpec(f"{KIND}-{i}", KIND, command, environment)
            for i, command in enumerate(commands)
        ]
        write_specs(self._home, specs)
        revive(self._home)
        send(keeper(self._home), 1)  # SIGHUP: look at the specs again

    def kill(self) -> None:
        """SIGKILL for the first one; its supervisor kills the rest of the tree and starts it."""
        send(mark(self.pid()), 9)

    def pid(self) -> int:
        """Of the first one, which is to be running."""
        return self._cluster.pid(_FIRST)

    def roots(self) -> list[int]:
        """The processes that are up."""
        return [p.pid for p in self._cluster.processes() if p.kind == KIND and p.pid is not None]

    def state_bytes(self) -> int:
        return sum(f.stat().st_size for f in self.state.rglob("*") if f.is_file())

    def stop(self) -> None:
        lifecycle.down(self._home.data)
        shutil.rmtree(self.state.parent, ignore_errors=True)

    def clear(self) -> None:
        """Empties the state folder."""
        shutil.rmtree(self.state, ignore_errors=True)
        self.state.mkdir(parents=True)
