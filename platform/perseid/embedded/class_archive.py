"""An archive of the classes of a worker's JVM: class data sharing, JEP 350.

A JVM with Spark loads and verifies thousands of classes before its first epoch. A restarted worker
does that while another one catches up on the same cores. With the archive it is ready sooner and
costs a third less (decisions/0006). It is made once per installation, by a JVM that opens a
session, warms up and ends; a JVM of another build, or with other jars, does not use it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from perseid.embedded.cache import cache_root, short_digest

TRAINING_TIMEOUT_S = 300
# Not at a random address (the default of some builds of Java 17): then each JVM would rewrite its
# pointers and so have a copy of its own.
USE = "-XX:+UnlockDiagnosticVMOptions -XX:ArchiveRelocationMode=0 -XX:SharedArchiveFile="
MAKE = "-XX:ArchiveClassesAtExit="


def class_archive(
    java: Path, home: Path, environment: Mapping[str, str], note: Callable[[str], None]
) -> Path | None:
    """The archive for workers of SPARK_HOME `home`, made on first use.

    None when it cannot be made, which is reported: then workers only start more slowly.
    """
    release = java / "release"
    build = release.read_bytes() if release.is_file() else b""
    place = home / f"classes-{short_digest(os.fsencode(java.resolve()) + build)}.jsa"
    if place.is_file():
        return place
    remove_orphans()
    note("recording the classes of a worker (once, some 20 s)")
    try:
        problem = _train(place, environment)
    except OSError as error:  # a cache that is not writable
        problem = str(error)
    if problem is None:
        return place
    note(f"the classes of a worker could not be recorded, so workers start slower: {problem}")
    return None


def java_options(archive: Path | None) -> dict[str, str]:
    """The environment that makes a worker's JVM use the archive, with the user's own options."""
    own = os.environ.get("PERSEID_JAVA_OPTIONS", "")
    return {"PERSEID_JAVA_OPTIONS": f"{USE}{archive} {own}".strip()} if archive is not None else {}


def _train(place: Path, environment: Mapping[str, str]) -> str | None:
    """Makes the archive; returns the error, None when it exists."""
    with tempfile.TemporaryDirectory(dir=place.parent, prefix="training-") as folder:
        fresh = Path(folder) / place.name
        command = [sys.executable, "-m", "perseid.worker.spark.train", "--scratch", folder]
        try:
            ran = subprocess.run(
                command,
                env={**os.environ, **environment, "PERSEID_JAVA_OPTIONS": f"{MAKE}{fresh}"},
                check=False,
                capture_output=True,
                text=True,
                timeout=TRAINING_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            return f"it took over {TRAINING_TIMEOUT_S} s"
        if ran.returncode != 0 or not fresh.is_file():
            words = [line for line in (ran.stdout + ran.stderr).splitlines() if line.strip()]
            return words[-1].strip() if words else f"exit code {ran.returncode}"
        fresh.replace(place)
    return None


def remove_orphans() -> None:
    """Removes the homes of deleted installations: an archive has some 170 MB."""
    for home in cache_root().glob("spark-*"):
        jars = home / "jars"
        if jars.is_symlink() and not jars.exists():
            shutil.rmtree(home, ignore_errors=True)
