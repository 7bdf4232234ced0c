"""Each script on the model of Kafka and on a broker, which must give the same observations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from perseid.testing.kafka import FakeRangeReader
from perseid.testing.kafka_model import ModelKafka
from perseid.testing.simulation.engine import SimulatedClock, Simulation
from perseid.testing.simulation.faults import Faults, Gates
from perseid.testing.simulation.network import Network
from perseid.testing.simulation.ports import (
    SimulatedBroker,
    SimulatedColumnReader,
    SimulatedLogReader,
    SimulatedLogWriter,
    SimulatedTopics,
    SimulatedTransactions,
)
from perseid.topics.log import LogReader
from support.broker import KafkaServer
from support.conformance import Script
from support.conformance.kafka import SCRIPTS
from support.conformance.kafka_side import BrokerSide, KafkaSide, ModelSide
from support.kafka_handle import Kafka

HOUR_S = 3600.0


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerSide]:
    with KafkaServer(tmp_path_factory.mktemp("kafka")) as server:
        side = BrokerSide(server)
        yield side
        side.kafka.ranges.close()
        side.kafka.sources.close()


@dataclass
class SimulatedKafka(Kafka):
    """The ports that the simulation gives to its processes."""

    broker: SimulatedBroker | None = None

    def reader(self) -> LogReader:
        assert self.broker is not None
        return SimulatedLogReader(self.broker)


def simulated(simulation: Simulation) -> SimulatedKafka:
    gates = Gates(simulation, Faults())
    model = ModelKafka(SimulatedClock(simulation))
    broker = SimulatedBroker(simulation, gates, Network(simulation, gates), model)
    return SimulatedKafka(
        SimulatedTopics(broker), SimulatedTransactions(broker), SimulatedLogWriter(broker),
        FakeRangeReader(model), SimulatedColumnReader(broker), model, broker=broker,
    )  # fmt: skip


def simulate(script: Script[KafkaSide]) -> list[object]:
    """What the script sees as a process of a simulation without faults."""
    seen: list[list[object]] = []
    with Simulation(1) as simulation:
        side = ModelSide(simulated(simulation))
        group = simulation.group("script")
        simulation.spawn(group, script.name, lambda: seen.append(script.observe(side)))
        assert simulation.run(HOUR_S, lambda: bool(seen))
    return seen[0]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_models_and_broker_agree(script: Script[KafkaSide], real: BrokerSide) -> None:
    modelled = script.observe(ModelSide())
    assert modelled == script.observe(real)
    assert modelled == list(script.expected)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_simulated_ports_agree_with_the_model(script: Script[KafkaSide]) -> None:
    assert simulate(script) == list(script.expected)
