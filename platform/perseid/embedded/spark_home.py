"""The path of the pyspark package, and a SPARK_HOME for workers, without importing pyspark."""

from __future__ import annotations

import os
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from perseid.embedded.cache import cache_root, short_digest
from perseid.errors import RefusedError

PARTS = ("bin", "jars", "sbin")


def spark_home() -> Path:
    """$SPARK_HOME is ignored on purpose: jars and Python side must be of one version."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise RefusedError("pyspark is not installed: `pip install perseid` brings it")
    return Path(os.path.dirname(found.origin))


def lean_home() -> Path:
    """A SPARK_HOME without Spark's zipped Python packages, made of links to the installed one.

    Spark puts SPARK_HOME/python/lib/pyspark.zip at the front of the path of every Python process
    that it starts. Python keeps no compiled files for a zip, so each process compiles its imports
    (2-3 s), and each task reads the zip's directory again. Without the zips they import the
    installed pyspark, which has the version of these jars.

    Harmless when it exists. OSError where the cache is not writable.
    """
    installed = spark_home().resolve()
    home = cache_root() / f"spark-{short_digest(str(installed))}"
    home.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        _link(home / part, installed / part)
    return home


def _link(place: Path, target: Path) -> None:
    if place.is_symlink() and place.readlink() == target:
        return
    fresh = place.with_name(f"{place.name}.{os.getpid()}")  # several clusters start at once
    with suppress(FileNotFoundError):
        fresh.unlink()
    fresh.symlink_to(target)
    fresh.replace(place)
