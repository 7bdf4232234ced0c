"""How a deployment's clients come in: settings from environment and files, secrets in neither."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perseid.errors import UsageError
from perseid.records import Deployment
from perseid.records.access import Access

PLACES: dict[str, Any] = {
    "kafka": "broker:9093", "zookeeper": "zk:2281", "redis": "redis://r:6379", "store": "/s",
    "state": "/t", "logs": "/l",
}  # fmt: skip


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A deployment as a process reads it under an environment."""

    def load_(**environment: str) -> Deployment:
        for name, value in environment.items():
            monkeypatch.setenv(f"PERSEID_{name}", value)
        file = tmp_path / "deployment.json"
        file.write_text(json.dumps(PLACES))
        return Deployment.load(file)

    return load_


def test_without_settings_nothing_is_asked_for(load: Any) -> None:
    found = load()
    assert not any(access.encrypted or access.known for access in found.accesses().values())
    assert str(found.brokers()) == "broker:9093"


@pytest.mark.security("5.1")
def test_each_part_has_its_own_settings(load: Any) -> None:
    found = load(
        KAFKA_CA="/ca", KAFKA_USER="perseid", KAFKA_PASSWORD_FILE="/secret",
        ZOOKEEPER_USER="keeper", REDIS="rediss://r:6379", REDIS_CA="system",
    )  # fmt: skip
    assert found.brokers().access == Access(
        part="KAFKA", ca="/ca", user="perseid", password_file="/secret"
    )
    assert (found.zookeeper_access.user, found.zookeeper_access.encrypted) == ("keeper", False)
    assert (found.redis_access.user, found.redis_access.ca) == (None, "system")


@pytest.mark.security("5.2")
def test_a_job_has_a_principal_of_its_own_where_there_is_one(load: Any) -> None:
    plain = load(KAFKA_CA="/ca", KAFKA_USER="perseid", KAFKA_PASSWORD_FILE="/secret")
    assert plain.brokers("wordcount") == plain.brokers()
    found = load(KAFKA_JOB_USER="perseid-{job}", KAFKA_JOB_PASSWORD_FILE="/secrets/{job}").brokers(
        "wordcount"
    )
    assert found.access.user == "perseid-wordcount"
    assert found.access.password_file == "/secrets/wordcount"
    assert found.access.ca == "/ca"


@pytest.mark.security("5.1", "5.14")
@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ({"KAFKA_USER": "a"}, "passwords go over TLS only"),
        ({"KAFKA_CERT": "/c", "KAFKA_CA": "/a"}, "belong together"),
        ({"ZOOKEEPER_CERT": "/c", "ZOOKEEPER_KEY": "/k"}, "of no use without"),
        ({"KAFKA_JOB_USER": "{job}", "KAFKA_CA": "/a"}, "needs PERSEID_KAFKA_JOB_PASSWORD_FILE"),
        ({"KAFKA_JOB_CERT": "/{job}", "KAFKA_JOB_KEY": "/k"}, "without PERSEID_KAFKA_CA"),
        ({"KAFKA_USER": "{job}", "KAFKA_CA": "/a"}, "stands for a job in PERSEID_KAFKA_JOB"),
        ({"REDIS_CA": "/a"}, "begins with rediss://"),
        ({"REDIS": "redis://a:canary@r"}, "set PERSEID_REDIS_PASSWORD_FILE"),
        ({"REDIS": "rediss://r?ssl_cert_reqs=none"}, "after a '\\?'"),
        ({"REDIS": "redis://r?password=canary"}, "after a '\\?'"),
    ],
)
def test_what_does_not_fit_together_is_refused(
    load: Any, environment: dict[str, str], text: str
) -> None:
    with pytest.raises(UsageError, match=text) as caught:
        load(**environment)
    assert "canary" not in str(caught.value)


@pytest.mark.security("5.14")
def test_the_file_wins_over_the_environment_and_neither_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = Access(part="ZOOKEEPER", user="a")
    with pytest.raises(UsageError, match="set PERSEID_ZOOKEEPER_PASSWORD_FILE"):
        access.password()
    monkeypatch.setenv("PERSEID_ZOOKEEPER_PASSWORD", "canary one")
    assert access.password() == "canary one"
    file = tmp_path / "secret"
    file.write_text("canary two\n")
    filed = access.model_copy(update={"password_file": str(file)})
    assert filed.password() == "canary two"
    for shown in (repr(filed), str(filed), filed.model_dump_json(), repr(access)):
        assert "canary" not in shown


@pytest.mark.security("5.14")
@pytest.mark.parametrize("content", [b"", b"\n", b"a\nb\n", b"\xff", b"x" * 5000, b"a\0b"])
def test_a_file_that_is_no_secret_is_named_and_not_quoted(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "secret"
    file.write_bytes(content)
    access = Access(part="ZOOKEEPER", user="a", password_file=str(file))
    with pytest.raises(UsageError, match=f"PERSEID_ZOOKEEPER_PASSWORD_FILE: {file}") as caught:
        access.password()
    assert len(str(caught.value)) < 300


@pytest.mark.security("5.14")
def test_a_password_in_the_place_of_its_file_is_not_quoted() -> None:
    access = Access(part="ZOOKEEPER", user="a", password_file="canary")
    with pytest.raises(UsageError, match="expected the absolute path") as caught:
        access.password()
    assert "canary" not in str(caught.value)


@pytest.mark.security("5.1")
def test_a_certificate_that_cannot_be_read_is_named() -> None:
    with pytest.raises(UsageError, match=r"PERSEID_KAFKA_CA: /nowhere.pem cannot be read"):
        Access(part="KAFKA", ca="/nowhere.pem").check_files()
