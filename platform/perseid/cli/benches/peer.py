"""Plain PySpark as the peer: its own interpreter, its own settings, the same supervisor.

PySpark 4.0.0 and its JVM Kafka connector are fetched once into a venv below the cache folder, so
neither is ever a dependency of perseid.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from perseid.embedded import lifecycle
from perseid.embedded.cache import cache_root
from perseid.embedded.cluster import Cluster
from perseid.embedded.identity import mark, send
from perseid.embedded.java import java_home
from perseid.embedded.keeper_lock import revive
from perseid.embedded.paths import Home, state_root
from perseid.embedded.table import ProcessSpec, keeper, write_specs
from perseid.errors import PermanentError

VERSION = "4.0.0"
JOB = Path(__file__).with_name("spark_job.py")
PROCESS = "peer"


@dataclass(frozen=True, slots=True)
class Install:
    """Where the peer lies."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def ivy(self) -> Path:
        return self.folder / "ivy"

    @property
    def home(self) -> Path:
        """Its SPARK_HOME; ours may be in the environment."""
        return next(self.folder.glob("lib/python*/site-packages/pyspark"))


def install(say: Callable[[str], None]) -> Install:
    """The peer, fetched first when it is not in the cache."""
    folder = cache_root() / "peers" / f"spark-{VERSION}"
    found = Install(folder)
    done = folder / "complete"
    if done.is_file():
        return found
    say(f"fetching PySpark {VERSION} and its Kafka connector into {folder} (once)")
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    _run([str(found.python), "-m", "pip", "install", "--quiet", f"pyspark=={VERSION}"])
    nothing = ["--kafka=-", "--source=-", "--sink=-", "--checkpoint=-", "--resolve-only"]
    _run([str(found.python), str(JOB), f"--ivy={found.ivy}", *nothing])
    done.touch()
    return found


class Peer:
    """One plain Spark query under a supervisor: when it dies it is started again at once."""

    def __init__(self, installed: Install, data: Path, memory: str) -> None:
        self._installed, self._memory = installed, memory
        self._home = Home(data)
        self._cluster = Cluster(data)
        # On tmpfs like perseid's state logs, so that neither side waits for a disk.
        self._checkpoint = state_root(data) / "checkpoint"

    def start(self, kafka: str, source: str, sink: str, *, max_offsets: int) -> None:
        self._home.make()
        shutil.rmtree(self._checkpoint, ignore_errors=True)
        self._checkpoint.mkdir(parents=True)
        command = [
            str(self._installed.python), str(JOB), f"--ivy={self._installed.ivy}",
            f"--kafka={kafka}", f"--source={source}", f"--sink={sink}",
            f"--checkpoint={self._checkpoint}", f"--max-offsets={max_offsets}",
            f"--memory={self._memory}",
        ]  # fmt: skip
        environment = {
            "JAVA_HOME": str(java_home()),
            "SPARK_HOME": str(self._installed.home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": str(self._installed.python),
        }
        write_specs(self._home, [ProcessSpec(PROCESS, PROCESS, command, environment)])
        revive(self._home)
        send(keeper(self._home), 1)  # SIGHUP: look at the specs again

    def kill(self) -> None:
        """SIGKILL for the driver; its supervisor kills the rest of the tree and starts it again."""
        send(mark(self.pid()), 9)

    def pid(self) -> int:
        return self._cluster.pid(PROCESS)

    def roots(self) -> list[int]:
        """The driver's process; none while it is down."""
        return [p.pid for p in self._cluster.processes() if p.name == PROCESS and p.pid is not None]

    def checkpoint_bytes(self) -> int:
        """What lies in its checkpoint folder, the state's files above all."""
        return sum(f.stat().st_size for f in self._checkpoint.rglob("*") if f.is_file())

    def stop(self) -> None:
        lifecycle.down(self._home.data)
        shutil.rmtree(self._checkpoint.parent, ignore_errors=True)


def _run(command: list[str]) -> None:
    environment = {k: v for k, v in os.environ.items() if k not in {"SPARK_HOME", "PYTHONPATH"}}
    environment["JAVA_HOME"] = str(java_home())
    done = subprocess.run(
        command, stdout=sys.stderr, stderr=subprocess.PIPE, text=True, check=False, env=environment
    )
    if done.returncode != 0:
        raise PermanentError(
            f"the peer could not be fetched: {' '.join(command[:5])} ended with exit code "
            f"{done.returncode}: {done.stderr[-2000:]}; it needs the network once"
        )
