"""A SPARK_HOME without Spark's zipped Python packages.

Spark puts SPARK_HOME/python/lib/pyspark.zip in front of the path of every Python process that it
starts. Python keeps no compiled files for a zip, so each of these processes compiles what it
imports (2-3 s), and each task reads the zip's directory again. Without the zips they import the
installed pyspark, which is the one that came with these jars.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

PARTS = ("bin", "jars", "sbin")


def lean(root: Path) -> Path:
    """The folder in `root`, made of links to the installed Spark; harmless when it is there.

    OSError where `root` cannot be written.
    """
    import pyspark

    installed = Path(pyspark.__file__).resolve().parent
    home = root / f"spark-home-{pyspark.__version__}-{os.getuid()}"
    home.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        _link(home / part, installed / part)
    return home


def _link(place: Path, target: Path) -> None:
    if place.is_symlink() and place.readlink() == target:
        return
    fresh = place.with_name(f"{place.name}.{os.getpid()}")  # several workers start at once
    with suppress(FileNotFoundError):
        fresh.unlink()
    fresh.symlink_to(target)
    fresh.replace(place)
