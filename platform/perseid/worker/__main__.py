"""`python -m perseid.worker --deployment FILE --id w1`: the process that a supervisor runs."""

from __future__ import annotations

import argparse
import logging
import os
from pathlib import Path

from perseid.records import Deployment


def main() -> None:
    parser = argparse.ArgumentParser(prog="perseid worker")
    parser.add_argument("--deployment", type=Path, required=True)
    parser.add_argument("--id", required=True)
    arguments = parser.parse_args()
    logging.basicConfig(
        level=os.environ.get("PERSEID_LOG", "INFO"),
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    logging.getLogger("kazoo").setLevel(logging.WARNING)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    from perseid.worker.service import WorkerService

    deployment = Deployment.load(arguments.deployment)
    state = Path(deployment.state)
    scratch = state / "queries" / arguments.id
    WorkerService(deployment, arguments.id, state / "archives", scratch).run()


if __name__ == "__main__":
    main()
