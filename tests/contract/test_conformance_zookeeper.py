"""Each script on the model of ZooKeeper and on a server, which must give the same observations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from perseid.testing.conformance import Script
from perseid.testing.conformance.zookeeper import SCRIPTS
from perseid.testing.conformance.zookeeper_side import FakeSide, RealSide, ZooKeeperSide
from perseid.testing.zookeeper import ZooKeeperServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_model_and_server_agree(script: Script[ZooKeeperSide], server: ZooKeeperServer) -> None:
    with closing(FakeSide()) as model, closing(RealSide(server.port)) as real:
        modelled = script.observe(model)
        assert modelled == script.observe(real)
    assert modelled == list(script.expected)
