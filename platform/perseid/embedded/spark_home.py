"""Where the pyspark package lies, without importing it."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

from perseid.errors import RefusedError


def spark_home() -> Path:
    """$SPARK_HOME is ignored on purpose: jars and Python side must be of one version."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise RefusedError("pyspark is not installed: `pip install perseid` brings it")
    return Path(os.path.dirname(found.origin))
