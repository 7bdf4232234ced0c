"""`python -m perseid.testing.simulation SEED` plays one seed and prints its trace.

`python -m perseid.testing.simulation FIRST:END` plays many seeds on all cores, prints the traces of
the failed ones, and counts how often each fault and branch was hit. A failed test prints the
options that repeat it.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module

from perseid.embedded.paths import repository
from perseid.errors import UsageError
from perseid.testing.simulation import again, approximate
from perseid.testing.simulation.faults import BRANCHES, REPLICA_BRANCHES, SPREAD_BRANCHES
from perseid.testing.simulation.job import Shape
from perseid.testing.simulation.many import Tally, play
from perseid.testing.simulation.scenario import run

EVERY = 500  # seeds per line of progress


def main(arguments: list[str]) -> int:
    """Returns the exit code: 1 when a seed failed, 2 for invalid arguments."""
    options = _parser().parse_args(arguments)
    first, _, end = options.seeds.partition(":")
    if not first.isdigit() or (end and not end.isdigit()):
        _parser().error(f"{options.seeds!r} is no seed, and no FIRST:END")
    alone = options.shape is not None or options.script or options.planted or options.approximate
    if options.spread and options.replicas:
        _parser().error("--spread and --replicas: a job has one of them")
    if end and alone:
        _parser().error("FIRST:END plays seeds as they draw themselves: leave the options out")
    try:
        if end:
            return _many(range(int(first), int(end)), options)
        return _one(int(first), options)
    except UsageError as error:
        _parser().error(str(error))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m perseid.testing.simulation")
    parser.add_argument("seeds", metavar="SEED|FIRST:END")
    parser.add_argument("--shape", metavar="NAME=VALUE,...", help="instead of what the seed draws")
    parser.add_argument("--script", metavar="NAME:NAME=VALUE,...", help="instead of drawn faults")
    parser.add_argument("--planted", metavar="NAME", help="with this planted defect")
    parser.add_argument("--approximate", action="store_true", help="approximate fault tolerance")
    parser.add_argument("--spread", action="store_true", help="jobs of several fragments")
    parser.add_argument("--replicas", action="store_true", help="jobs with replicas")
    return parser


def _one(seed: int, options: argparse.Namespace) -> int:
    with _planted(options.planted) if options.planted else nullcontext():
        if options.approximate:
            rough = approximate.run(seed)
            print("\n".join(rough.lines))
            print(f"seed {seed}: {rough.error or 'all held'}; trace {rough.trace_hash}")
            return 1 if rough.error else 0
        shape = None if options.shape is None else again.parsed(Shape, options.shape)
        script = again.script_of(options.script) if options.script else None
        outcome = run(seed, shape, script, spread=options.spread, replicas=options.replicas)
    print("\n".join(outcome.lines))
    print(f"seed {seed} ({outcome.mode.value}): {outcome.error or 'all held'}; "
          f"trace {outcome.trace_hash}")  # fmt: skip
    print(f"faults: {outcome.faults or 'none'}; struck: {dict(outcome.struck)}")
    return 1 if outcome.error else 0


def _planted(name: str) -> AbstractContextManager[None]:
    root = repository()
    if root is None:
        raise UsageError("--planted: expected a checkout, found an installed package; clone it")
    sys.path.insert(0, str(root / "tests"))
    planted: AbstractContextManager[None] = import_module("support.mutants.search").named(name)
    return planted


def _many(seeds: range, options: argparse.Namespace) -> int:
    branches = SPREAD_BRANCHES if options.spread else BRANCHES
    tally = Tally(branches=REPLICA_BRANCHES if options.replicas else branches)
    for outcome in play(seeds, spread=options.spread, replicas=options.replicas):
        tally.take(outcome)
        if outcome.error:
            print(outcome.explain(), flush=True)
        elif tally.seeds % EVERY == 0:
            print(f"{tally.seeds} seeds, {len(tally.failed)} failed", file=sys.stderr)
    print(tally.table())
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
