"""What all rings share: the command line options, time limits, and the warm cluster.

A ring is a folder below tests/: unit, contract, simulation, system, deployment. A test that needs
Kafka, ZooKeeper or Redis takes `services`; one that needs coordinators and workers too takes
`cluster`. Both are one cluster a session. Those of the deployment ring take `perseid_stack`.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from benches.spark_events import EVENT_LOG
from perseid.embedded import Cluster
from perseid.records import crashpoints
from perseid.records.deployment import REGISTRIES
from perseid.testing.server import free_port
from perseid.worker.__main__ import STOP_CHECKPOINT
from perseid.worker.machine import CGROUPS
from support.security import MARKER, Matrix

pytest_plugins = ["perseid.testing.fixtures", "support.resuming"]
# The same examples in every run; `--seeds N` and the soak are for searching. No deadlines: the
# machine may be busy with a Kafka and two Sparks.
settings.register_profile("perseid", derandomize=True, deadline=None)
settings.load_profile("perseid")

TESTS = Path(__file__).parent
# Seconds until a single test counts as hung, unless it sets another; RING_BUDGET_S is for what is
# slow. What computes is niced: with busy Sparks it gets a tenth of a core, and 6 s became 60. The
# start of what all share counts for the first: a cluster during unit tests took 260 s once.
TEST_TIMEOUT_S = {"unit": 600, "contract": 300, "simulation": 900, "system": 900, "deployment": 900}
# Seconds a ring should take in a run of all, on two cores; more is reported in the summary.
RING_BUDGET_S = {
    "unit": 480, "contract": 600, "simulation": 420, "system": 1320, "deployment": 360,
}  # fmt: skip
# Tests that a normal run draws of each group: they show variants of what others show too, or faults
# of one part. Each takes 20 s to 3 min. `--matrix` runs all.
DRAWN = {
    # system
    "spread": 1,  # of jobs on three workers: deaths, changes, buffers
    "replicas": 1,  # beyond both copies' deaths in turn
    "changes": 2,  # of a job, with its state kept: revisions, partitions, SQL
    "longest": 1,  # a kill in each operator, the operations page, a Spark cluster, a worker's audit
    "feedback edges": 1,
    "examples": 1,
    "audits": 1,  # beyond one of a past with deaths: of code that reads a clock, of foreign records
    "field": 1,  # rare faults that users met
    "planted divergences": 1,  # beyond a value, alone and among foreign records
    # deployment
    "containers": 1,
    # contract
    "brokers": 2,  # faults of brokers and ensembles that one test starts
    "spark": 2,  # what we change in Spark, or know of it; two fragments without a coordinator
    "addresses": 1,  # of servers, beyond a name that leads to another one
    "queries": 1,  # SQL on many queries, or on hosts that differ
}
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}

_SEED = pytest.StashKey[int]()
_drawn: list[str] = []
_spent_s: dict[str, float] = {}
_counts: dict[str, dict[str, int]] = {}
_controls = Matrix()


def duration_s(text: str) -> float:
    """Seconds of "90s", "30m" or "1h"."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if found is None:
        raise pytest.UsageError(f"--soak {text!r}: write a duration like 90s, 30m or 1h")
    return float(found[1]) * _UNITS[found[2]]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("perseid")
    group.addoption("--soak", default=None, metavar="DURATION", help="run the soak tests so long")
    group.addoption("--seed", default=None, type=int, metavar="N", help="what is drawn by chance")
    group.addoption("--matrix", action="store_true", help="all kill points and mutants")
    group.addoption("--security", default=None, metavar="FILE", help="save the security matrix")
    group.addoption("--seeds", default=None, type=int, metavar="N", help="seeds of a simulation")


def ring_of(path: Path) -> str:
    parts = path.relative_to(TESTS).parts if path.is_relative_to(TESTS) else ()
    return parts[0] if len(parts) > 1 else ""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Soak tests run only with --soak, and then alone, those of the matrix only with --matrix.

    Of a test that is drawn one variant stays, or as many as it asks for. Every test gets its
    ring's limit.
    """
    soaking = config.getoption("--soak") is not None
    left_out = [i for i in items if (i.get_closest_marker("soak") is not None) != soaking]
    if not config.getoption("--matrix"):
        left_out += [i for i in items if i.get_closest_marker("matrix") is not None]
        left_out += _not_drawn(config, [i for i in items if i not in set(left_out)])
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]
    for item in items:
        if (control := item.get_closest_marker(MARKER)) is not None:
            _controls.expect(item.nodeid, control.args)
        limit_s = TEST_TIMEOUT_S.get(ring_of(item.path))
        if limit_s and not soaking and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(limit_s))


def _not_drawn(config: pytest.Config, items: list[pytest.Item]) -> list[pytest.Item]:
    """All variants of tests that are marked `drawn`, less as many of each as are wanted.

    Variants are the parameters of one test, of which its marker has the number, or the tests of a
    `group` of DRAWN.
    """
    variants: dict[str, list[pytest.Item]] = {}
    wanted: dict[str, int] = {}
    for item in items:
        marker = item.get_closest_marker("drawn")
        if marker is not None:
            group = marker.kwargs.get("group")
            name = group or item.nodeid.partition("[")[0]
            variants.setdefault(name, []).append(item)
            wanted[name] = DRAWN[group] if group else marker.args[0] if marker.args else 1
    left: list[pytest.Item] = []
    for name, found in variants.items():
        chance = random.Random(_seed(config) + zlib.crc32(name.encode()))
        left += chance.sample(found, max(0, len(found) - wanted[name]))
    return left


def _seed(config: pytest.Config) -> int:
    """Of what this run draws by chance."""
    if _SEED not in config.stash:
        given: int | None = config.getoption("--seed")
        config.stash[_SEED] = random.SystemRandom().randrange(1_000_000) if given is None else given
        _drawn.append(f"drawn by chance: repeat with --seed {config.stash[_SEED]}")
    return config.stash[_SEED]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _controls.note(report.nodeid, report.outcome)
    ring = ring_of(TESTS.parent / report.location[0])
    _spent_s[ring] = _spent_s.get(ring, 0.0) + report.duration
    if report.when == "call" or report.failed:
        counts = _counts.setdefault(ring, {})
        counts[report.outcome] = counts.get(report.outcome, 0) + 1


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line a ring; `perseid test` takes the counts from a file."""
    terminalreporter.section("rings")
    for ring, counts in _counts.items():
        spent_s, budget_s = _spent_s[ring], RING_BUDGET_S.get(ring)
        over = f", OVER its budget of {budget_s} s" if budget_s and spent_s > budget_s else ""
        shown = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
        terminalreporter.write_line(f"{ring or 'other'}: {shown} in {spent_s:.0f} s{over}")
    _show_controls(terminalreporter)
    for line in _drawn:
        terminalreporter.write_line(line)
    summary = os.environ.get("PERSEID_TEST_SUMMARY")
    if summary:
        rings = {
            ring: {**counts, "seconds": round(_spent_s[ring], 1)}
            for ring, counts in _counts.items()
        }
        Path(summary).write_text(json.dumps(rings))


def _show_controls(terminalreporter: pytest.TerminalReporter) -> None:
    """The security matrix: its controls when all of them were tested, all of it into a file.

    The runs of one `perseid test` hand theirs on, so that the last one has the whole.
    """
    folder = os.environ.get("PERSEID_TEST_CONTROLS")
    if folder:
        _controls.join(Path(folder), str(os.getpid()))
    if _controls.complete:
        terminalreporter.section("security")
        for line in _controls.lines():
            terminalreporter.write_line(line)
    wanted = terminalreporter.config.getoption("--security")
    if wanted is not None:
        Path(wanted).write_text(_controls.markdown())


@pytest.fixture(scope="session")
def soak_s(request: pytest.FixtureRequest) -> float:
    """How long a soak test runs."""
    return duration_s(request.config.getoption("--soak"))


@pytest.fixture(scope="session")
def seed(request: pytest.FixtureRequest) -> int:
    """Of what a run draws by chance: another one each time, printed at its end."""
    return _seed(request.config)


@pytest.fixture(scope="session")
def seeds(request: pytest.FixtureRequest) -> int | None:
    """How many seeds a simulation runs; None: its own default."""
    found: int | None = request.config.getoption("--seeds")
    return found


@pytest.fixture(scope="session")
def _session_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    cluster = Cluster(folder / "data", tied=True)
    # Every process of the cluster inherits these: tests arm crash points, give containers a limit,
    # read Spark's events, put wheels of jobs there, and one runs a schema registry.
    os.environ[crashpoints.FOLDER] = str(folder / "data" / "crash-points")
    os.environ[CGROUPS] = str(folder / "data" / "cgroups")
    os.environ[EVENT_LOG] = str(folder / "spark-events")
    os.environ["PIP_FIND_LINKS"], os.environ["PIP_NO_INDEX"] = str(folder / "wheels"), "1"
    os.environ[STOP_CHECKPOINT] = "1"  # a worker that leaves takes one first
    os.environ[REGISTRIES] = f"tests=http://127.0.0.1:{free_port()}"  # no server is there, mostly
    yield cluster
    cluster.down()
    if request.session.testsfailed and cluster.home.logs.is_dir():
        shutil.copytree(cluster.home.logs, folder / "logs")
    cluster.down(purge=True)


@pytest.fixture(scope="session")
def services(_session_cluster: Cluster) -> Cluster:
    """Kafka, ZooKeeper and Redis, healthy."""
    if not _session_cluster.processes():
        _session_cluster.up(workers=0, coordinators=0)
    return _session_cluster


@pytest.fixture(scope="session")
def cluster(_session_cluster: Cluster) -> Cluster:
    """A whole cluster: the services, a leader and a standby, two workers."""
    _session_cluster.up(workers=2, coordinators=2)
    return _session_cluster
