"""`python -m perseid.worker --deployment FILE --id w1`: the process that a supervisor runs."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from perseid import logs
from perseid.errors import RefusedError, UsageError, exit_code
from perseid.records import Deployment
from perseid.worker.process.surroundings import check_user, settle

STOP_LIMIT, STOP_CHECKPOINT = "PERSEID_STOP_LIMIT", "PERSEID_STOP_CHECKPOINT"


def main(given: list[str] | None = None) -> None:
    arguments = _parser().parse_args(given)
    logs.set_up(arguments.id, arguments.log_format)
    from perseid.worker.leaving import Leaving
    from perseid.worker.service import WorkerService

    asked = arguments.stop_limit or os.environ.get(STOP_LIMIT)
    wanted = arguments.stop_checkpoint or os.environ.get(STOP_CHECKPOINT) == "1"
    how = Leaving(checkpoint=wanted)
    if asked is not None:
        how = Leaving(_limit(asked), wanted)
    deployment = Deployment.load(arguments.deployment)
    state = Path(deployment.state)
    scratch = state / "queries" / arguments.id
    WorkerService(deployment, arguments.id, state / "archives", scratch, leaving=how).run()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="perseid worker", description=__doc__)
    parser.add_argument("--deployment", type=Path, required=True, help="the deployment's settings")
    parser.add_argument("--id", required=True, help="this worker's name, such as w1")
    parser.add_argument(
        "--stop-limit", metavar="DURATION",
        help=f"how long it may take to leave, such as 60s; default ${STOP_LIMIT}, or 8s",
    )  # fmt: skip
    parser.add_argument(
        "--stop-checkpoint",
        action="store_true",
        help=f"take a checkpoint of its jobs before it leaves; also ${STOP_CHECKPOINT}=1",
    )
    logs.add_option(parser)
    return parser


def _limit(text: str) -> float:
    from perseid.jobs.model.units import seconds

    try:
        return seconds(text)
    except ValueError as error:
        raise UsageError(f"--stop-limit {text[:40]!r} ({STOP_LIMIT}): expected {error}") from None


def run() -> int:
    """Exit codes as for every command: 2 for a wrong setting, 3 for a refused action."""
    try:
        settle()
        check_user(os.getuid())
        main()
    except (UsageError, RefusedError) as error:
        sys.stderr.write(f"perseid: {error}\n")
        return exit_code(error)
    return 0


if __name__ == "__main__":
    sys.exit(run())
