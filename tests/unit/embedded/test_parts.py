from pathlib import Path

import pytest

from perseid.embedded import parts

JAVA, FOLDER = Path("/java"), Path("/data/part")


def settings(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


@pytest.mark.security("5.1")
def test_the_broker_never_makes_topics_by_itself_and_listens_only_here() -> None:
    found = settings(parts.broker_properties(FOLDER, 1001, 1002))
    assert found["auto.create.topics.enable"] == "false"
    assert "127.0.0.1:1001" in found["listeners"] and "127.0.0.1:1002" in found["listeners"]
    assert found["log.dirs"] == "/data/part/data"


def test_zookeeper_grants_sessions_of_two_seconds() -> None:
    found = settings(parts.zookeeper_config(FOLDER, 1003))
    assert 2 * int(found["tickTime"]) <= 2000 <= 20 * int(found["tickTime"])
    assert found["clientPortAddress"] == "127.0.0.1"


def test_engines_stop_before_what_they_talk_to() -> None:
    ports = {"spark-master": 1, "spark-ui": 2}
    orders = [
        parts.engine("worker", 1, FOLDER, {}).stop_order,
        parts.spark(JAVA, FOLDER, ports, 1)[0].stop_order,
        parts.broker(JAVA, FOLDER, FOLDER).stop_order,
        parts.zookeeper(JAVA, FOLDER).stop_order,
    ]
    assert orders == sorted(set(orders))


def test_engines_are_named_by_kind_and_number() -> None:
    spec = parts.engine("coordinator", 2, Path("/d.json"), {"A": "b"})
    assert (spec.name, spec.kind) == ("c2", "coordinator")
    assert spec.command[1:] == [
        "-m", "perseid.coordinator", "--deployment", "/d.json", "--id", "c2"
    ]  # fmt: skip


def test_spark_has_two_cores_for_each_worker() -> None:
    command = parts.spark(JAVA, FOLDER, {"spark-master": 1, "spark-ui": 2}, 2)[1].command
    assert command[command.index("--cores") + 1] == "4"


def test_redis_server_is_there() -> None:
    assert Path(parts.redis_executable()).is_file()


def test_redis_writes_no_file() -> None:
    """So a full disk is nothing to it."""
    command = parts.redis(FOLDER, 6379).command
    options = dict(zip(command[1::2], command[2::2], strict=True))
    assert (options["--save"], options["--appendonly"]) == ("", "no")
