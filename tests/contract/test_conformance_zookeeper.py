"""Each script on the model of ZooKeeper and on a server, which must give the same observations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from math import inf
from typing import Any

import pytest

from perseid.testing.simulation.engine import Simulation
from perseid.testing.simulation.faults import Faults, Gates
from perseid.testing.simulation.network import Cut, Network, SimulatedCoordination
from support.conformance import Script
from support.conformance.zookeeper import SCRIPTS
from support.conformance.zookeeper_side import FakeSide, RealSide, ZooKeeperSide
from support.zookeeper import ZooKeeperServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


class SimulatedSide(FakeSide):
    """The sessions that the simulation gives to its processes, whose ways are cut by hand."""

    def __init__(self) -> None:
        super().__init__()
        self._simulation = Simulation(1)
        self._gates = Gates(self._simulation, Faults())
        self._network = Network(self._simulation, self._gates)

    def session(self) -> SimulatedCoordination:
        group = self._simulation.group("client")
        return SimulatedCoordination(
            self.server, self._network, self._gates, self._simulation, group
        )

    def cut(self, session: Any) -> None:
        self._network.sever(session.group, "zookeeper", Cut.BOTH, inf)
        session.suspend()

    def mend(self, session: Any) -> None:
        self._network.heal()
        session.beat()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_models_and_server_agree(script: Script[ZooKeeperSide], server: ZooKeeperServer) -> None:
    with closing(FakeSide()) as model, closing(RealSide(server.port)) as real:
        modelled = script.observe(model)
        assert modelled == script.observe(real)
    assert modelled == list(script.expected)
    assert script.observe(SimulatedSide()) == modelled
