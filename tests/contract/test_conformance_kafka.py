"""Each script on the model of Kafka and on a broker, which must give the same observations."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perseid.testing.broker import KafkaServer
from perseid.testing.conformance import Script
from perseid.testing.conformance.kafka import SCRIPTS
from perseid.testing.conformance.kafka_side import BrokerSide, KafkaSide, ModelSide


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerSide]:
    with KafkaServer(tmp_path_factory.mktemp("kafka")) as server:
        side = BrokerSide(server)
        yield side
        side.kafka.ranges.close()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_model_and_broker_agree(script: Script[KafkaSide], real: BrokerSide) -> None:
    modelled = script.observe(ModelSide())
    assert modelled == script.observe(real)
    assert modelled == list(script.expected)
