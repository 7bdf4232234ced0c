"""Plays seeds: `python -m perseid.testing.simulation SEED` prints the trace of one.

`python -m perseid.testing.simulation FIRST:END` plays many on all cores, prints the traces of those
that fail, and how often each fault and branch was hit.
"""

from __future__ import annotations

import sys

from perseid.testing.simulation.many import Tally, play
from perseid.testing.simulation.scenario import run

EVERY = 500  # seeds, a line of progress


def main(arguments: list[str]) -> int:
    """The exit code: 1 when a seed failed, 2 for arguments that are none."""
    if len(arguments) != 1 or not all(part.isdigit() for part in arguments[0].split(":")):
        print(__doc__, file=sys.stderr)
        return 2
    first, _, end = arguments[0].partition(":")
    return _many(int(first), int(end)) if end else _one(int(first))


def _one(seed: int) -> int:
    outcome = run(seed)
    print("\n".join(outcome.lines))
    print(f"seed {seed} ({outcome.mode.value}): {outcome.error or 'all held'}; "
          f"trace {outcome.trace_hash}")  # fmt: skip
    print(f"faults: {outcome.faults or 'none'}; struck: {dict(outcome.struck)}")
    return 1 if outcome.error else 0


def _many(first: int, end: int) -> int:
    tally = Tally()
    for outcome in play(range(first, end)):
        tally.take(outcome)
        if outcome.error:
            print(outcome.explain(), flush=True)
        elif tally.seeds % EVERY == 0:
            print(f"{tally.seeds} seeds, {len(tally.failed)} failed", file=sys.stderr)
    print(tally.told())
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
