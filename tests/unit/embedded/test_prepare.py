"""What `up` keeps of how to come in at a user's own parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from perseid.embedded import Outside, prepare
from perseid.embedded.jars import KAFKA
from perseid.embedded.paths import Home
from perseid.errors import RefusedError
from perseid.records import Deployment

PORTS = {"kafka": 1, "zookeeper": 2, "redis": 3, "spark-master": 4}
OWN = {"KAFKA_CA": "/ca", "KAFKA_USER": "perseid", "KAFKA_PASSWORD_FILE": "/secret"}


@pytest.mark.security("5.1", "5.14")
def test_a_second_up_knows_what_the_first_was_reported(
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


@pytest.mark.security("5.7")
def test_a_deployment_that_runs_no_code_of_jobs_still_does_not_after_the_next_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "state_root", lambda _: tmp_path / "state")
    home = Home(tmp_path)
    made = prepare._deployment(home, Outside(), PORTS)
    assert made.jobs_allow_code
    home.deployment.write_text(made.model_copy(update={"jobs_allow_code": False}).model_dump_json())
    assert not prepare._deployment(home, Outside(), PORTS).jobs_allow_code


@pytest.mark.parametrize(
    ("noted", "readable"),
    [(KAFKA[2], True), ("4.1.10", True), ("99.0.0", False)],
)
def test_data_of_a_newer_kafka_are_refused(tmp_path: Path, noted: str, readable: bool) -> None:
    (tmp_path / prepare.MADE_BY).write_text(noted + "\n")
    if readable:
        prepare.check_readable(tmp_path)
        return
    with pytest.raises(RefusedError, match=f"is of Kafka {noted}.*--purge"):
        prepare.check_readable(tmp_path)
