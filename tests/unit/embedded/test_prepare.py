"""What `up` keeps of how to come in at a user's own parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from perseid.embedded import Outside, prepare
from perseid.embedded.paths import Home
from perseid.records import Deployment

PORTS = {"kafka": 1, "zookeeper": 2, "redis": 3, "spark-master": 4}
OWN = {"KAFKA_CA": "/ca", "KAFKA_USER": "perseid", "KAFKA_PASSWORD_FILE": "/secret"}


@pytest.mark.security("5.1", "5.14")
def test_a_second_up_knows_what_the_first_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "state_root", lambda _: tmp_path / "state")
    home = Home(tmp_path)

    def up(outside: Outside) -> Deployment:
        made = prepare._deployment(home, outside, PORTS)
        home.deployment.write_text(made.model_dump_json())
        return made

    with monkeypatch.context() as environment:
        for name, value in OWN.items():
            environment.setenv(f"PERSEID_{name}", value)
        environment.setenv("PERSEID_KAFKA_PASSWORD", "canary")
        first = up(Outside(kafka="kafka:9093"))
    assert "canary" not in home.deployment.read_text()
    assert first.kafka_access.user == "perseid"
    assert up(Outside(kafka="kafka:9093")) == first
    assert not up(Outside()).kafka_access.encrypted, "the embedded broker asks for nothing"
