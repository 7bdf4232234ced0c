from __future__ import annotations

import argparse
import socket
from pathlib import Path

import pytest

from perseid.coordinator import __main__ as coordinator
from perseid.coordinator.api.listening import Listening, add_options, is_loopback, listening
from perseid.coordinator.api.server import Api
from perseid.errors import RefusedError, UsageError
from support.served import Served


def chosen(*arguments: str, **environment: str) -> Listening:
    parser = argparse.ArgumentParser()
    add_options(parser)
    return listening(parser.parse_args(arguments), environment)


@pytest.mark.security("5.6")
def test_by_default_a_free_port_of_loopback() -> None:
    assert chosen() == Listening("127.0.0.1", 0)
    assert chosen().url_of(81) == "http://127.0.0.1:81"


def test_the_command_line_wins_over_the_environment() -> None:
    found = chosen("--api-port", "81", PERSEID_API_PORT="82", PERSEID_API_HOST="::1")
    assert (found.port, found.host, found.url_of(81)) == (81, "::1", "http://[::1]:81")
    assert chosen("--api-url", "https://perseid.example/").url_of(1) == "https://perseid.example"


@pytest.mark.parametrize(
    ("host", "named"),
    [
        ("0.0.0.0", socket.gethostname()), ("::", socket.gethostname()), ("10.1.2.3", "10.1.2.3"),
        ("perseid.example", "perseid.example"), ("127.0.0.1.nip.io", "127.0.0.1.nip.io"),
    ],
)  # fmt: skip
@pytest.mark.security("5.6")
def test_elsewhere_only_with_tokens(host: str, named: str, tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="perseid tokens new"):
        chosen("--api-host", host)
    found = chosen("--api-host", host, PERSEID_API_TOKENS=str(tmp_path / "t"))
    assert found.url_of(8) == f"http://{named}:8"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--api-port", "x"], "expected a number"),
        (["--api-port", "65536"], "expected 0"),
        (["--api-cert", "c.pem"], "go together"),
    ],
)
def test_settings_that_cannot_be(arguments: list[str], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        chosen(*arguments)


def test_a_port_that_is_taken_and_a_certificate_that_is_none_are_reported(tmp_path: Path) -> None:
    app = Served(tmp_path).app
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(UsageError, match=r"cannot listen at 127\.0\.0\.1.*in use"):
            Api(app, Listening(port=taken.getsockname()[1]))
    (tmp_path / "key.pem").write_text("perseid_no-key")
    with pytest.raises(UsageError, match="expected a certificate") as raised:
        Api(app, Listening(cert=tmp_path / "key.pem", key=tmp_path / "key.pem"))
    assert "no-key" not in str(raised.value)


@pytest.mark.parametrize(("argument", "code"), [("0.0.0.0", 3), ("--api-port=x", 2)])
def test_a_coordinator_does_not_start(
    argument: str, code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [argument] if argument.startswith("--") else ["--api-host", argument]
    monkeypatch.setattr("sys.argv", ["x", "--deployment", "absent.json", "--id", "c1", *given])
    assert coordinator.run() == code
    assert "perseid: --api-" in capsys.readouterr().err
