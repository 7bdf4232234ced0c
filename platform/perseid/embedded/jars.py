"""The broker's jars: resolved once into a cache, every file checked against a lock file.

`kafka.lock` lists SHA-256 and name of each jar. The cache folder is named after the lock's own
hash, so that a new lock never meets old jars. Pyspark's Ivy resolves them from its default
repositories; its result is accepted only if it is exactly what the lock names.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from perseid.embedded.cache import cache_root, short_digest
from perseid.embedded.spark_home import spark_home
from perseid.errors import RefusedError, RetryableError

LOCK = Path(__file__).with_name("kafka.lock")
KAFKA = ("org.apache.kafka", "kafka_2.13", "4.2.2")
RESOLVE_TIMEOUT_S = 600


def read_lock(lock: Path = LOCK) -> dict[str, str]:
    """File name to SHA-256."""
    pairs = (line.split() for line in lock.read_text().splitlines() if line.strip())
    return {name: digest for digest, name in pairs}


def differences(folder: Path, wanted: dict[str, str]) -> list[str]:
    """How the jars in `folder` differ from the lock, empty when they agree."""
    present = {path.name for path in folder.glob("*.jar")} if folder.is_dir() else set()
    found = [f"{name} is missing" for name in sorted(wanted.keys() - present)]
    found += [f"{name} is not in the lock file" for name in sorted(present - wanted.keys())]
    for name in sorted(present & wanted.keys()):
        digest = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        if digest != wanted[name]:
            found.append(f"{name} has SHA-256 {digest}, the lock file has {wanted[name]}")
    return found


def kafka_jars(
    java_home: Path, note: Callable[[str], None] = lambda _: None, lock: Path = LOCK
) -> Path:
    """The folder with the broker's jars, resolved on first use."""
    wanted = read_lock(lock)
    key = short_digest(lock.read_bytes())
    folder = cache_root() / f"kafka-{KAFKA[2]}-{key}"
    if folder.is_dir():
        found = differences(folder, wanted)
        if not found:
            return folder
        note(f"the cached Kafka jars are damaged ({found[0]}): resolving them again")
        shutil.rmtree(folder, ignore_errors=True)
    note(f"resolving Kafka {KAFKA[2]} (43 MB, once)")
    return _resolve_into(folder, wanted, java_home)


def _resolve_into(folder: Path, wanted: dict[str, str], java_home: Path) -> Path:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="resolving-") as name:
        fresh = Path(name) / "jars"
        fresh.mkdir()
        resolve(java_home, fresh, Path(name) / "ivy")
        found = differences(fresh, wanted)
        if found:
            raise RefusedError(
                f"the Kafka {KAFKA[2]} jars are not those of {LOCK.name}: {'; '.join(found[:3])}; "
                "nothing was kept. Check where the jars come from (a mirror?) and try again"
            )
        try:
            fresh.rename(folder)
        except OSError:  # another process was faster; its jars passed the same check
            if not folder.is_dir():
                raise
    return folder


def resolve(java_home: Path, into: Path, ivy_home: Path) -> None:
    """Runs Ivy; RetryableError with the end of its output when it cannot fetch all jars."""
    ivy = next(iter((spark_home() / "jars").glob("ivy-*.jar")))
    command = [
        str(java_home / "bin" / "java"), f"-Divy.default.ivy.user.dir={ivy_home}", "-jar", str(ivy),
        "-dependency", *KAFKA, "-confs", "default",
        "-retrieve", f"{into}/[artifact]-[revision].[ext]",
    ]  # fmt: skip
    try:
        ran = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=RESOLVE_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise RetryableError(f"resolving the Kafka jars took over {RESOLVE_TIMEOUT_S} s") from None
    if ran.returncode != 0 or not any(into.glob("kafka_*.jar")):
        words = [line.strip() for line in (ran.stdout + ran.stderr).splitlines() if line.strip()]
        reason = next((w for w in words if "Exception" in w or "FAILED" in w), words[-1:])
        raise RetryableError(
            f"the Kafka {KAFKA[2]} jars could not be downloaded ({reason}): they are needed once; "
            f"go online and try again, or copy a filled cache folder to {cache_root()}"
        )
