"""`perseid status` asks the leader over HTTP: with a token and TLS where the leader wants them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from perseid.cli import status
from perseid.coordinator.api.listening import Listening
from perseid.coordinator.api.server import Api
from perseid.coordinator.api.tokens import Role
from perseid.errors import RefusedError, RetryableError
from support.served import JOB, Served


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return Served(tmp_path)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Self-signed, of 127.0.0.1, with its key in the file beside it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "perseid")])
    begin = datetime.now(UTC) - timedelta(minutes=5)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin).not_valid_after(begin + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]),
                       critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    path = tmp_path / "cert.pem"
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    path.with_name("key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )  # fmt: skip
    return path


@pytest.fixture
def url(served: Served, certificate: Path) -> Iterator[str]:
    """Of a leader with TLS that wants tokens."""
    api = Api(served.app, Listening(cert=certificate, key=certificate.with_name("key.pem")))
    api.start()
    yield api.url
    api.stop()


def test_a_token_and_an_authority_from_the_environment(
    url: str, served: Served, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert url.startswith("https://127.0.0.1:")
    monkeypatch.setenv(status.AUTHORITY, str(certificate))
    monkeypatch.setenv(status.TOKEN, served.secrets[Role.VIEWER])
    assert [job["name"] for job in status.ask_leader(url)["jobs"]] == [JOB]
    monkeypatch.delenv(status.TOKEN)
    with pytest.raises(RefusedError, match="put it into PERSEID_API_TOKEN"):
        status.ask_leader(url)


def test_a_certificate_that_nobody_known_signed(
    url: str, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RetryableError, match=r"does not answer at https.*certificate"):
        status.ask_leader(url)
    monkeypatch.setenv(status.AUTHORITY, str(certificate.with_name("absent")))
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
