"""What a job's own topics show of its rates: the input, though a worker died in the middle."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import pytest

from perseid.coordinator import trimming
from perseid.coordinator.planners.job_topology import feeding
from perseid.coordinator.planners.measured_rates import job_rates, measured
from perseid.testing.kafka_model import ModelRecord
from perseid.testing.simulation import job
from perseid.testing.simulation.engine import Simulation
from perseid.testing.simulation.job import Shape
from perseid.testing.simulation.scenario import run
from perseid.testing.simulation.swarm import kill_owner
from perseid.testing.simulation.world import World
from perseid.topics import codec, names
from perseid.topics.chain import Accepted, Chain
from perseid.topics.records import EpochDone, Token, TokenRecord

SHAPE = Shape(workers=2, hosts=2, totals=3, relays=2, sink_on_totals=True)


@dataclass
class OwnerDies:
    """At `kill_s`, unless that is 0; keeps the world."""

    name: ClassVar[str] = "owner dies"

    kill_s: float
    worlds: list[World] = field(default_factory=list)

    def __call__(self, simulation: Simulation, world: World) -> None:
        self.worlds.append(world)
        if self.kill_s:
            simulation.after(self.kill_s, partial(kill_owner, simulation, world))


@pytest.mark.parametrize("kill_s", [0.0, 6.1, 6.3, 6.5])
def test_rates_are_those_of_the_input(kill_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 6.3 s the owner dies between the commit of an epoch and its report."""
    monkeypatch.setattr(trimming, "ask", lambda job, _: (job, []))  # all tokens are read below
    spec, script = SHAPE.spec, OwnerDies(kill_s)
    outcome = run(3, SHAPE, script)
    assert not outcome.error, outcome.explain()
    (world,) = script.worlds
    logs = world.kafka.topics
    tokens = tokens_of(logs[names.tokens(job.JOB)].logs[0].records)
    sent = [codec.decode(r.value) for r in logs[names.progress(job.JOB)].logs[0].records if r.value]
    found = measured(tokens, [record for record in sent if isinstance(record, EpochDone)])

    done = {record.token_offset for record in sent if isinstance(record, EpochDone)}
    counted = [token for at, token in tokens.items() if at in done]
    elapsed_s = sum(t.time_ms - tokens[t.previous_offset].time_ms for t in counted[1:]) / 1000
    ranges = [r for token in tokens.values() for split in token.splits for r in split]
    read = {(r.source, r.partition): r.end for r in ranges}
    assert read == {(s, p): log.end for s in spec.sources for p, log in enumerate(logs[s].logs)}
    for token in [counted[0], *(t for at, t in tokens.items() if at not in done)]:
        for one in (r for split in token.splits for r in split):
            read[one.source, one.partition] -= one.end - one.start
    rates = {(s, p): rate for s, each in found.sources.items() for p, rate in enumerate(each)}
    assert rates == pytest.approx({key: rows / elapsed_s for key, rows in read.items()})

    derived = job_rates(spec, found)
    assert sum(sum(derived[name]) for name in feeding(spec)) == pytest.approx(found.output)


def tokens_of(records: list[ModelRecord]) -> dict[int, Token]:
    chain, found = Chain(), {}
    for record in records:
        if record.value is not None:
            sent = codec.decode(record.value)
            assert isinstance(sent, TokenRecord)
            fed = chain.feed(record.offset, sent)
            if isinstance(fed, Accepted) and fed.token is not None:
                found[fed.offset] = fed.token
    return found
