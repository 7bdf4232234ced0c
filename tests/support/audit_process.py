"""Audits one after the other in a process of its own, with one Spark session for all of them.

Started by its path with the cluster's folder and one for its files. Orders and answers are JSON
lines on stdin and stdout: `{"job", "epochs", "revision", "tolerances"}`, then `{"number"}` of the
order, from 0, and `{"answer"}`: the report, `{"refused"}` or `{"error"}`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from perseid import logs
from perseid.cli import jobs
from perseid.clocks import SystemClock
from perseid.embedded import deployment, parts
from perseid.embedded.java import java_home
from perseid.embedded.spark_home import lean_home
from perseid.errors import PerseidError, RefusedError
from perseid.replay import reports, request, tolerances
from perseid.replay.auditing import Asked, Auditor
from perseid.worker.process.surroundings import settle
from perseid.worker.spark.session import open_session

CORES = 1


def main(data: Path, folder: Path, orders: Iterable[str]) -> None:
    os.environ.update(parts.spark_environment(java_home(), lean_home()))
    os.environ.setdefault(logs.LEVEL, "WARNING")
    logs.set_up("replay")
    settings = deployment(data)
    spark = open_session(f"local[{CORES},4]", CORES, "audits", folder / "spark", None)
    try:
        with jobs.connected(data) as cluster:
            for number, line in enumerate(orders):
                order = json.loads(line)
                asked = Asked(
                    order["job"], request.parsed(epochs=order["epochs"]), folder / str(number),
                    CORES, order["revision"], tolerances.of_options(order["tolerances"]),
                    mixed=frozenset(order["mixed"]),
                )  # fmt: skip
                auditor = Auditor(
                    settings, cluster.registry, cluster.topics, SystemClock(), asked,
                    lambda line: note(str(line)), spark,
                )
                print(json.dumps({"number": number, "answer": answer(auditor)}), flush=True)
    finally:
        spark.stop()


def answer(auditor: Auditor) -> Any:
    try:
        return json.loads(reports.as_json(auditor.audit()))
    except RefusedError as error:
        return {"refused": str(error)}
    except PerseidError as error:
        return {"error": str(error)}


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    settle()
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.stdin)
