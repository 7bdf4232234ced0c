"""`python -m perseid.worker --deployment FILE --id w1`: the process that a supervisor runs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from perseid import logs
from perseid.errors import RefusedError, UsageError
from perseid.records import Deployment


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="perseid worker")
    parser.add_argument("--deployment", type=Path, required=True)
    parser.add_argument("--id", required=True)
    logs.add_option(parser)
    arguments = parser.parse_args(given)
    logs.set_up(arguments.id, arguments.log_format)
    from perseid.worker.service import WorkerService

    deployment = Deployment.load(arguments.deployment)
    state = Path(deployment.state)
    scratch = state / "queries" / arguments.id
    WorkerService(deployment, arguments.id, state / "archives", scratch).run()


def run() -> int:
    """Exit codes as of every command: 2 for a wrong setting, 3 for what is refused."""
    try:
        main()
    except (UsageError, RefusedError) as error:
        sys.stderr.write(f"perseid: {error}\n")
        return 2 if isinstance(error, UsageError) else 3
    return 0


if __name__ == "__main__":
    sys.exit(run())
