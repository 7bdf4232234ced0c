"""Plays seeds: `python -m perseid.testing.simulation SEED [SEED ...]` prints each one's trace."""

from __future__ import annotations

import logging
import sys

from perseid.testing.simulation.scenario import run


def main(arguments: list[str]) -> int:
    logging.disable()  # the trace tells more
    failed = 0
    for argument in arguments:
        outcome = run(int(argument))
        print("\n".join(outcome.lines))
        print(f"seed {outcome.seed}: {outcome.error or 'all held'}; trace {outcome.trace_hash}")
        print(f"faults: {outcome.faults or 'none'}; struck: {dict(outcome.struck)}")
        failed += bool(outcome.error)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
