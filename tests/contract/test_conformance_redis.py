"""Each script on the model of Redis and on a server, which must give the same observations."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.conformance import Script
from support.conformance.redis import SCRIPTS
from support.conformance.redis_side import FakeSide, RealSide, RedisSide
from support.redis_server import RedisServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_model_and_server_agree(script: Script[RedisSide], server: RedisServer) -> None:
    modelled = script.observe(FakeSide())
    assert modelled == script.observe(RealSide(server))
    assert modelled == list(script.expected)
