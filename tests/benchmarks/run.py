"""`perseid bench`: perseid and its peers side by side in one run, measured alike at their sinks.

It is a script of its own, outside `benches`, since an installed package measures nothing.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from benches import results
from benches.asked import Asked, parse_numbers, parse_size, parse_sizes
from benches.catalogue import BENCHES
from perseid.cli import canvas, main, output
from perseid.errors import UsageError

COLUMNS = ("figure", "query", "setting", "x", "system", "version", "guarantee", "rows_per_s",
           "ratio", "times_live", "time_ratio", "messages_out", "messages_per_line", "p50_ms",
           "p99_ms", "p50_ratio", "p99_ratio", "cpu_s_per_million", "cpu_ratio", "seconds", "p95_s",
           "max_s", "seconds_each", "lost", "duplicated", "wrong", "state_bytes", "totals_right",
           "rss_mb", "checkpoints", "us_per_record", "memory_bytes", "memory_peak_bytes",
           "bytes_per_key", "peak_bytes_per_key", "mb_per_minute", "restore_s", "mb_per_s", "chain",
           "read_bytes", "checkpoints_taken", "full_snapshots", "checkpoint_bytes", "checkpoint_s",
           "changed_share", "longest_epoch", "runs", "value", "worst", "worst_to_greedy", "limit_s",
           "memory_mb", "limit_mb", "cases", "cores",
           "threads", "zookeeper_per_s", "tokens_per_s", "late_p50_ms", "late_max_ms",
           "input_p50_ms", "input_max_ms")  # fmt: skip
ALONE = "none"

Sizes = Annotated[
    str | None, typer.Option(help="checkpoint, restore: of state (10MB,100MB,1GB,tmi).")
]
Keys = Annotated[str | None, typer.Option(help="scale: numbers of keys (1000,100000).")]
Partitions = Annotated[str | None, typer.Option(help="scale: operator partitions (1,4,16,64).")]
Jobs = Annotated[str | None, typer.Option(help="scale: jobs (1,5,20); coordinator: (1,30,300).")]
Minutes = Annotated[
    float | None, typer.Option(min=0.1, help="scale: of a run at a steady rate, for memory.")
]
Master = Annotated[str | None, typer.Option(help="scale: of the worker (local[2]).")]
StateDir = Annotated[
    Path | None, typer.Option(help="scale: folder for the state logs (/dev/shm if it is large).")
]


def bench(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"One of {', '.join(BENCHES)}.")],
    *,
    peer: Annotated[
        list[str] | None,
        typer.Option("--peer", help="Run with it (all that it has), or none; may be repeated."),
    ] = None,
    runs: Annotated[
        int | None,
        typer.Option("--runs", min=1, help="Runs (5), cases a point (100) or seeds (40)."),
    ] = None,
    state: Annotated[
        str | None, typer.Option("--state", help="recovery, promotion: size of the state (100MB).")
    ] = None,
    kills: Annotated[
        int | None, typer.Option("--kills", min=1, help="promotion: of the primary's worker (20).")
    ] = None,
    lines: Annotated[
        int | None,
        typer.Option("--lines", min=1, help="wordcount, spread: that wait (64, 20 million)."),
    ] = None,
    records: Annotated[
        int | None,
        typer.Option("--records", min=1, help="Most: that wait at first (running-sum 48 million)."),
    ] = None,
    seconds: Annotated[
        int | None,
        typer.Option("--seconds", min=1, help="Window: latency 20, audit 20, checkpoint 75."),
    ] = None,
    sizes: Sizes = None,
    keys: Keys = None,
    partitions: Partitions = None,
    jobs: Jobs = None,
    minutes: Minutes = None,
    master: Master = None,
    state_dir: StateDir = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Folder for PNG and SVG.")] = None,
    data: output.Data = None,
    as_json: output.Json = False,
) -> None:
    """Measure perseid with its peers, on a cluster of its own.

    wordcount: lines/s at saturation, latency at 500 lines/s, peak memory. running-sum and map:
    records/s when every record is answered, with state and without. latency: at 500 and 5,000
    records/s. recovery: seconds from kill -9 of the worker to new output, with and without the warm
    second worker. spread: a job of two levels on one worker against three. promotion: seconds from
    kill -9 of the primary's worker to output of its replica. audit: records/s of an audit against
    its job's, and what it costs a live one. checkpoint: speed with checkpoints
    against without, and their moment. restore: seconds to come back from the store.
    scale: cost as keys, operator partitions and jobs grow.
    nexmark: events/s of its seven queries, each judged by a plain computation. coordinator: what
    many idle jobs cost the leader.
    planners: the papers' experiments on the planners, and simulation: seeds/s, both
    without a cluster. A try-out: `perseid bench map --records 5000 --runs 1`.
    """
    given = {"--peer": peer, "--state": state, "--kills": kills, "--lines": lines,
             "--records": records, "--seconds": seconds, "--sizes": sizes, "--keys": keys,
             "--partitions": partitions, "--jobs": jobs, "--minutes": minutes, "--master": master,
             "--state-dir": state_dir}  # fmt: skip
    asked = Asked(_peers(name, given), runs, parse_size("--state", state), kills, lines, records,
                  seconds, *parse_sizes("--sizes", sizes, may_be_timed=name == "checkpoint"),
                  parse_numbers("--keys", keys), parse_numbers("--partitions", partitions),
                  parse_numbers("--jobs", jobs), minutes, master, state_dir)  # fmt: skip
    if plot is not None:
        canvas.check_installed()
    signal.signal(signal.SIGTERM, _interrupt)  # or its cluster would stay
    result = BENCHES[name].run(asked, data)
    path = results.append(result)
    if plot is not None:
        results.plot(result, plot)
    if as_json:
        output.document(result)
    else:
        results.show(result, COLUMNS)
    output.note(f"appended to {path}")


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _peers(name: str, given: Mapping[str, object]) -> tuple[str, ...]:
    """The peers that run; UsageError for what the benchmark does not take."""
    if name not in BENCHES:
        raise UsageError(f"bench {name}: expected one of {', '.join(BENCHES)}")
    found = BENCHES[name]
    takes = (*found.takes, *(["--peer"] if found.peers else []))
    for option, value in given.items():
        if value is not None and option not in takes:
            raise UsageError(f"bench {name} takes no {option}: leave it out")
    named = given["--peer"]
    if not isinstance(named, list):
        return found.peers
    for peer in named:
        if peer not in (*found.peers, ALONE):
            expected = ", ".join((*found.peers, ALONE))
            raise UsageError(f"--peer {peer}: expected one of {expected}")
    return tuple(peer for peer in found.peers if peer in named)


commands = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
commands.command(epilog="Example: perseid bench running-sum --peer bytewax --json")(bench)


def run(arguments: list[str]) -> int:
    """Runs `perseid bench ARGUMENTS` and returns its exit code."""
    return main.run(arguments, commands, "perseid bench")


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
