"""The system ring: a whole cluster, used through the command line and judged at the topics."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from perseid.embedded import Cluster
from perseid.registry import Registry
from perseid.testing.running import RunningCluster
from support.audit_client import Audits, audits

LOG_LINES = 80  # of each process, below a failure


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Puts the ends of the processes' logs below a failure: the cluster is gone afterwards."""
    report = yield
    used = getattr(item, "funcargs", {}).values() if report.failed else ()
    for running in (found for found in used if isinstance(found, RunningCluster)):
        for path, text in running.logs().items():
            end = "\n".join(text.splitlines()[-LOG_LINES:])
            report.sections.append((f"end of {path.name}", end))
    return report


@pytest.fixture(scope="session")
def running(cluster: Cluster) -> RunningCluster:
    return RunningCluster(cluster)


@pytest.fixture(scope="module")
def auditing(running: RunningCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audits]:
    """A process that audits jobs of the warm cluster."""
    with audits(running.cluster.data, tmp_path_factory.mktemp("audits")) as found:
        yield found


@pytest.fixture(scope="session")
def wheels(cluster: Cluster) -> Path:
    """The folder from which jobs' packages are installed."""
    return cluster.data.parent / "wheels"


@pytest.fixture(scope="session")
def crash_points(cluster: Cluster) -> Path:
    """The folder in which crash points of the warm cluster are armed."""
    return cluster.data / "crash-points"


@pytest.fixture(scope="module", autouse=True)
def _nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Removes the jobs that this file's tests made and, because one failed, did not remove."""
    items = [item for item in request.session.items if item.path == request.path]
    if not any("cluster" in getattr(item, "fixturenames", ()) for item in items):
        yield
        return
    running: RunningCluster = request.getfixturevalue("running")
    before = _jobs(running)
    yield
    for name in sorted(_jobs(running) - before):
        running.run("jobs", "remove", name, "--purge")


def _jobs(running: RunningCluster) -> set[str]:
    with closing(Registry.connect(running.cluster.deployment)) as registry:
        return set(registry.jobs())
