"""The peers' own interpreters: a venv each below the cache folder, of the versions in programs/.

So no peer is ever a dependency of perseid, and none is one of another. Spark also gets its JVM
Kafka connector there.
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

from perseid.embedded.cache import cache_root, short_digest
from perseid.embedded.java import java_home
from perseid.errors import PermanentError

PROGRAMS = Path(__file__).with_name("programs")
DISTRIBUTIONS = {
    "spark": "pyspark", "bytewax": "bytewax", "quix": "quixstreams", "loop": "confluent-kafka",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Install:
    """Where a peer lies, and its version."""

    name: str
    folder: Path
    version: str

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def ivy(self) -> Path:
        """Spark's jars."""
        return self.folder / "ivy"

    @property
    def spark_home(self) -> Path:
        """The peer's; ours may be in the environment."""
        return next(self.folder.glob("lib/python*/site-packages/pyspark"))


def install(name: str, note: Callable[[str], None]) -> Install:
    """The peer `name`, fetched first when it is not in the cache.

    "spark-rocksdb" is the distribution "spark" with other settings.
    """
    program = name.partition("-")[0]
    locked = PROGRAMS / f"{program}.txt"
    folder = cache_root() / "peers" / f"{program}-{short_digest(locked.read_bytes())}"
    found = Install(name, folder, version_of(program, locked.read_text()))
    done = folder / "complete"
    if done.is_file():
        return found
    note(f"fetching {DISTRIBUTIONS[program]} {found.version} into {folder} (once)")
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    _run([str(found.python), "-m", "pip", "install", "--quiet", "-r", str(locked)])
    if program == "spark":
        _run([str(found.python), str(PROGRAMS / "spark_jars.py"), str(found.ivy)])
    done.touch()
    return found


def version_of(name: str, locked: str) -> str:
    """The version of the peer itself among its pinned distributions. Pure."""
    pins = dict(line.split("==") for line in locked.split())
    return pins[DISTRIBUTIONS[name]]


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
