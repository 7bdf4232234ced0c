"""Coordinators and workers of an embedded cluster that a test runs, as on separate hosts.

The cluster is `up(workers=0, coordinators=0)`; no supervisor restarts a process that ends.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

from perseid.embedded import Cluster

_MAIN = "from perseid.cli.main import main; main()"  # as the `perseid` script
GONE_S = 60.0


class Engine:
    """One process; a context manager that ends it with all its children."""

    def __init__(
        self, cluster: Cluster, kind: str, name: str, environment: Mapping[str, str],
        before: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """`kind`: worker or coordinator. `environment`: additions to this process's environment.

        `before`: a command that runs the one after it, such as `unshare`.
        """
        command = [*before, sys.executable, "-c", _MAIN, kind]
        command += ["--deployment", str(cluster.home.deployment), "--id", name]
        with open(cluster.home.log(name), "ab") as log:
            self._process = subprocess.Popen(
                command, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, start_new_session=True,
            )  # fmt: skip

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.kill()

    def kill(self) -> None:
        """Sends SIGKILL to the process and its children."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(GONE_S)


class WallClock:
    """A wall clock that a test sets, for the processes that have `environment`.

    Monotonic clocks are not changed. Uses libfaketime.
    """

    def __init__(self, folder: Path) -> None:
        """`folder` gets the clock, and the library that is compiled for it."""
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / "ahead"
        self.set(0)
        package = find_spec("libfaketime")
        assert package is not None and package.origin is not None, "libfaketime is not installed"
        library = Path(package.origin).parent / "vendor/libfaketime/src/libfaketime.so.1"
        self.environment = {
            "LD_PRELOAD": f"{_compiled(folder)} {library}",
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def set(self, ahead_s: int) -> None:
        """Sets it `ahead_s` ahead of the machine's clock from now on."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{ahead_s:+d}", encoding="ascii")
        fresh.replace(self._file)


def _compiled(folder: Path) -> Path:
    """With the compiler that libfaketime was installed by."""
    source, made = Path(__file__).with_name("wall_clock.c"), folder / "wall_clock.so"
    subprocess.run(["cc", "-O2", "-fPIC", "-shared", "-o", made, source, "-ldl"], check=True)
    return made
