"""The system ring: a whole cluster, used through the command line and judged at the topics."""

from __future__ import annotations

from pathlib import Path

import pytest

from perseid.embedded import Cluster
from perseid.testing.running import RunningCluster


@pytest.fixture(scope="session")
def running(cluster: Cluster) -> RunningCluster:
    return RunningCluster(cluster)


@pytest.fixture(scope="session")
def wheels(cluster: Cluster) -> Path:
    """The folder from which jobs' packages are installed."""
    return cluster.data.parent / "wheels"


@pytest.fixture(scope="session")
def crash_points(cluster: Cluster) -> Path:
    """The folder in which crash points of the warm cluster are armed."""
    return cluster.data / "crash-points"
