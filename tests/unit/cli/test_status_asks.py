"""`perseid status` asks the leader over HTTP: with a token and TLS where the leader wants them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from perseid.cli import status
from perseid.coordinator.api.listening import Listening
from perseid.coordinator.api.server import Api
from perseid.coordinator.api.tokens import Role
from perseid.errors import RefusedError, RetryableError
from support.certificates import Authority
from support.served import JOB, Served


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return Served(tmp_path)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def url(served: Served, authority: Authority) -> Iterator[str]:
    """Of a leader with TLS that wants tokens."""
    own = authority.issue("leader", ["127.0.0.1"])
    api = Api(served.app, Listening(cert=own.cert, key=own.key))
    api.start()
    yield api.url
    api.stop()


def test_a_token_and_an_authority_from_the_environment(
    url: str, served: Served, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert url.startswith("https://127.0.0.1:")
    monkeypatch.setenv(status.AUTHORITY, str(authority.ca))
    monkeypatch.setenv(status.TOKEN, served.secrets[Role.VIEWER])
    assert [job["name"] for job in status.ask_leader(url)["jobs"]] == [JOB]
    monkeypatch.delenv(status.TOKEN)
    with pytest.raises(RefusedError, match="put it into PERSEID_API_TOKEN"):
        status.ask_leader(url)


def test_a_certificate_of_an_unknown_authority(
    url: str, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RetryableError, match=r"does not answer at https.*certificate"):
        status.ask_leader(url)
    monkeypatch.setenv(status.AUTHORITY, str(authority.ca.with_name("absent")))
    with pytest.raises(RetryableError, match="No such file"):
        status.ask_leader(url)


def test_a_coordinator_that_does_not_lead_any_more(tmp_path: Path) -> None:
    api = Api(Served(tmp_path, tokens=False, leads=False).app)
    api.start()
    try:
        with pytest.raises(RetryableError, match="answers with 503"):
            status.ask_leader(api.url)
    finally:
        api.stop()
