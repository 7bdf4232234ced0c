"""Which of Spark's own settings a deployment passes on, as in PERSEID_SPARK. Pure.

An allow-list: perseid relies on the values of all others (`perseid.worker.spark.session`), and a
setting such as a Python executable or a plugin would run code. Secrets are not taken, since Spark
shows its settings: they belong in its own files (`spark-defaults.conf`).
"""

from __future__ import annotations

import re

from perseid.errors import UsageError

VARIABLE = "PERSEID_SPARK"
ALLOWED = (
    "spark.authenticate", "spark.network.crypto.enabled",
    "spark.driver.memory", "spark.driver.memoryOverhead",
    "spark.executor.memory", "spark.executor.memoryOverhead", "spark.executor.instances",
    "spark.eventLog.*", "spark.metrics.*", "spark.ui.*", "spark.sql.streaming.ui.*",
    "spark.sql.streaming.metricsEnabled", "spark.sql.streaming.numRecentProgressUpdates",
    "spark.kubernetes.*", "spark.yarn.*",
)  # fmt: skip
_SECRET = re.compile(r"secret|password|token|credential", re.IGNORECASE)
_SETTING = re.compile(r"(?P<name>spark(?:\.[A-Za-z0-9_-]+)+)=(?P<value>[^\s]*)")


def parse(text: str) -> dict[str, str]:
    """The settings of a text such as "spark.ui.enabled=true spark.executor.memory=4g".

    UsageError when a part is no setting, comes twice, or is not among ALLOWED.
    """
    found: dict[str, str] = {}
    for part in text.split():
        setting = _SETTING.fullmatch(part)
        if setting is None or setting["name"] in found:
            raise UsageError(
                f"{VARIABLE}: {part.partition('=')[0][:80]!r}: expected different settings "
                "separated by spaces, as spark.ui.enabled=true spark.executor.memory=4g"
            )
        found[setting["name"]] = setting["value"]
    return checked(found)


def checked(settings: dict[str, str]) -> dict[str, str]:
    """The settings themselves; UsageError for one that may not be passed on."""
    for name in settings:
        if _SECRET.search(name):
            raise UsageError(
                f"{VARIABLE}: {name[:80]}: secrets are not passed on, since Spark shows its "
                "settings; write it into spark-defaults.conf in $SPARK_CONF_DIR"
            )
        if not any(_fits(name, pattern) for pattern in ALLOWED):
            raise UsageError(
                f"{VARIABLE}: {name[:80]} is not passed on, since perseid relies on its own "
                f"value; allowed are {', '.join(ALLOWED)}"
            )
    return settings


def _fits(name: str, pattern: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
