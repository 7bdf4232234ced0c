"""Certificates for tests: an authority of the test's own and the certificates it signs, as PEM."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_VALID = timedelta(days=2)


@dataclass(frozen=True, slots=True)
class Certificate:
    """`both` is one file with key and certificate, as Java's PEM stores expect."""

    cert: Path
    key: Path
    both: Path


class Authority:
    """Signs in `folder`; `ca` is its own certificate."""

    def __init__(self, folder: Path, name: str = "perseid tests") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._name = folder, _named(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        public = self._key.public_key()
        made = (
            self._begun(self._name, public)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(_usage(signs=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.ca = folder / "ca.pem"
        self.ca.write_bytes(made.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, hosts: Sequence[str] = ()) -> Certificate:
        """Issues a certificate for the common name, also as a server at `hosts`."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._begun(_named(name), key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        builder = builder.add_extension(_usage(signs=False), critical=True)
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
            )
        signed = builder.sign(self._key, hashes.SHA256())
        found = Certificate(
            *(self._folder / f"{name}{end}" for end in (".pem", ".key", ".both.pem"))
        )
        pem = signed.public_bytes(serialization.Encoding.PEM)
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )  # fmt: skip
        found.cert.write_bytes(pem)
        found.key.write_bytes(secret)
        found.both.write_bytes(secret + pem)
        return found

    def _begun(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _VALID)
            .not_valid_after(now + _VALID)
        )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True, key_cert_sign=signs, crl_sign=signs, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip
