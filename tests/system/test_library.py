"""Every library operator in one job on a whole cluster: against plain Python, and under kills.

After the kills the job is stopped, and each sink, record by record, and each state is compared with
what the operators make of the same epochs in one process in which nothing dies.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from perseid.cli import jobs, state
from perseid.jobs.environments import loading
from perseid.records import crashpoints
from perseid.records.crashpoints import KillTarget
from perseid.testing.running import RunningCluster
from perseid.testing.verify.read import read_topic
from perseid.testing.wait import until
from support.kill_points import (
    POINTS,
    REACH_S,
    Kill,
    KillPoint,
    drawn,
    matrix,
    together,
)
from support.library_job import Input, job_text
from support.uninterrupted import Rows, Uninterrupted

MINUTE = 60_000
STATELESS = ("kept",)  # its writers have a sink and no state log
AT_ONCE = 3  # deaths of a task that Spark puts up with
ATTEMPTS = 4
FEED_S = 0.1  # between feedings; all that was fed is judged in one process at the end
READERS = 6  # of topics: each waits for its broker most of the time


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("library")
    (made / "job.yaml").write_text(job_text("library"))
    return made


@pytest.fixture(scope="module")
def input_(running: RunningCluster, folder: Path) -> Iterator[Input]:
    running.topic("library-in", 1)
    running.do("jobs", "apply", str(folder))
    running.keep_tokens("library")
    yield Input(running, "library-in")
    running.do("jobs", "remove", "library", "--purge")


def output(running: RunningCluster, name: str) -> Rows:
    return running.rows(f"library-{name}")


def test_library_operators_compute_what_plain_python_does(
    running: RunningCluster, input_: Input
) -> None:
    for _ in range(4):  # several epochs, two minutes in all
        input_.feed(500)
        running.wait_caught_up("library")
    rows = input_.rows

    words = Counter(row["w"] for row in rows)
    seen: dict[Any, set[Any]] = defaultdict(set)
    weights: dict[Any, Counter[Any]] = defaultdict(Counter)
    for row in rows:
        seen[row["g"]].add(row["w"])
        if len(row["w"]) == 2:
            weights[row["g"]][row["w"]] += 1
    last = {r["g"]: r["distinct"] for r in output(running, "users")}
    assert last == {g: len(values) for g, values in seen.items()}
    ranked = {(r["g"], r["rank"]): (r["w"], r["n"]) for r in output(running, "top")}
    assert ranked == {
        (g, place): pair
        for g, counts in weights.items()
        for place, pair in enumerate(sorted(counts.items(), key=lambda p: (-p[1], p[0]))[:3], 1)
    }
    heavy = {r["w"]: r["n"] for r in output(running, "heavy")}
    assert heavy == {word: n for word, n in words.items() if n >= 100}

    def ended() -> list[dict[str, Any]] | None:
        """The first minute's window: its end comes with a token after its rows'."""
        found = output(running, "modes")
        return found if len(found) == 3 else None

    for mode in until(ended, 60, "the first window of three keys"):
        xs = [r["x"] for r in rows if r["g"] == mode["g"] and r["ms"] < MINUTE]
        assert (mode["start"], mode["points"]) == (0, len(xs))
        assert mode["x"] == pytest.approx(sum(xs) / len(xs))
    models = output(running, "model")
    records = Counter(m["partition"] for m in models)
    assert 18 <= len(models) <= 20
    assert all(m["records"] % 100 == 0 and 0 < m["loss"] < 1 for m in models)
    assert all(
        max(m["records"] for m in models if m["partition"] == p) == 100 * n
        for p, n in records.items()
    )
    left = Counter(row["g"] for row in rows)
    right = Counter(row["g"] for row in rows if row["n"] == 1)
    newest = {r["partition"]: r["estimate"] or 0 for r in output(running, "size")}
    assert sum(newest.values()) == pytest.approx(sum(left[g] * right[g] for g in left))


def kill(running: RunningCluster, folder: Path, input_: Input, wanted: Sequence[Kill]) -> None:
    """Feeds until somebody has died everywhere; those of a takeover, until one was enough."""
    for one in wanted:
        crashpoints.arm(folder, one.armed_as, one.target)

    def left() -> list[str]:
        return [one.armed_as for one in wanted if crashpoints.armed(folder, one.armed_as)]

    def reached() -> bool:
        if left():
            input_.feed(20)
        return not left()

    takeover = {one.armed_as for one in wanted if one.point.takeover}
    until(
        lambda: reached() or takeover >= set(left()), REACH_S, f"somebody to die: {left()}", FEED_S
    )
    for _ in range(ATTEMPTS):  # a kill between two epochs leaves nothing to replay
        if not left():
            return
        running.wait_workers(2)
        input_.feed(500)
        running.take_over("library")
    assert not left(), f"no process died at {left()}"


def judge(running: RunningCluster, folder: Path) -> None:
    """Stops the job and compares all sinks and states with those of an uninterrupted run."""
    caught_up = running.wait_caught_up("library")["epoch"]
    running.do("jobs", "stop", "library")
    wanted = Uninterrupted(folder, {"kept-again": _kept_again})
    values = {"library-in": [r.value or b"" for r in read_topic(running.kafka, "library-in")]}
    tokens = running.tokens("library")
    assert tokens[-1].epoch >= caught_up
    for token in tokens:
        wanted.run(token, values)
    with ThreadPoolExecutor(READERS) as pool:
        written = dict(
            zip(wanted.job.sinks, pool.map(partial(output, running), wanted.job.sinks), strict=True)
        )
    for name, sink in wanted.job.sinks.items():
        seen, made = written[name], wanted.made[sink.input]
        if sink.key is None:  # records are spread over the topic's partitions
            assert sorted(seen, key=json.dumps) == sorted(made, key=json.dumps), name
        else:
            assert by_key(seen, sink.key) == by_key(made, sink.key), name
    for (operator, primitive), rows in states(running, wanted, tokens[-1].epoch).items():
        assert rows == wanted.harnesses[operator].rows(primitive), (operator, primitive)


def by_key(rows: Rows, key: str) -> dict[Any, Rows]:
    found: dict[Any, Rows] = defaultdict(list)
    for row in rows:
        found[row[key]].append(row)
    return found


def states(
    running: RunningCluster, wanted: Uninterrupted, epoch: int
) -> dict[tuple[str, str], Rows]:
    """Every primitive's rows by (operator, name), as `perseid state` reads them."""
    found = {}
    with jobs.connected(running.cluster.data) as cluster:
        for name in wanted.harnesses.keys() - set(STATELESS):
            spec = wanted.job.operators[name]
            gids = state.gids_of(wanted.job, name)
            asked = state.Asked("library", name, spec, loading.load(spec, Path()), gids)
            root, scratch = state.root_of(running.cluster.data), running.cluster.data / "scratch"
            shown = asked.look(cluster, root, None, None, 10**7, scratch)
            assert shown["epoch"] == epoch
            for primitive, block in shown["state"].items():
                rows = [{k: v for k, v in r.items() if k != "partition"} for r in block["rows"]]
                found[name, primitive] = rows
    assert sum(map(len, found.values())) > 100
    return found


def _kept_again(rows: Rows) -> Rows:
    return [{name: row[name] for name in ("g", "w", "ms")} for row in rows if row["n"] == 1]


@pytest.mark.drawn(group="longest")
def test_each_operator_is_killed_once_and_nothing_shows(
    running: RunningCluster, crash_points: Path, folder: Path, input_: Input, seed: int
) -> None:
    operators = Uninterrupted(folder, {}).harnesses
    wanted = drawn(random.Random(seed), operators, STATELESS)
    print(f"seed {seed}: {[one.armed_as for one in wanted]}")
    for some in together(wanted, AT_ONCE):
        kill(running, crash_points, input_, some)
    judge(running, folder)


@pytest.mark.matrix
@pytest.mark.timeout(3600)  # those of a driver kill for each operator: 26 min on a slow machine
@pytest.mark.parametrize(
    ("point", "target"), [pytest.param(p, v, id=f"{p.name}-{v}") for p in POINTS for v in p.targets]
)
def test_every_operator_at_every_point(
    running: RunningCluster, crash_points: Path, folder: Path, input_: Input,
    point: KillPoint, target: KillTarget,
) -> None:  # fmt: skip
    running.run("jobs", "start", "library")  # refused when no test before has stopped it
    wanted = matrix(point, target, Uninterrupted(folder, {}).harnesses, STATELESS)
    size = AT_ONCE if target == "self" else 1
    for at in range(0, len(wanted), size):
        kill(running, crash_points, input_, wanted[at : at + size])
    judge(running, folder)
