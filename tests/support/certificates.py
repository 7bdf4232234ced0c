"""Certificates for tests: an authority of the test's own and the certificates it signs, as PEM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization


@dataclass(frozen=True, slots=True)
class Certificate:
    """`both` is one file with key and certificate, as Java's PEM stores expect."""

    cert: Path
    key: Path
    both: Path


class Authority:
    """Signs in `folder`; `ca` is its own certificate."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._signs = folder, trustme.CA(path_length=0)
        self.ca = folder / "ca.pem"
        self._signs.cert_pem.write_to_path(self.ca)

    def issue(self, name: str, hosts: Sequence[str] = ()) -> Certificate:
        """Issues a certificate for the common name, also as a server at `hosts`."""
        issued = self._signs.issue_cert(*(hosts or [name]), common_name=name)
        key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), password=None)
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,  # all that Java reads
            serialization.NoEncryption(),
        )  # fmt: skip
        cert = issued.cert_chain_pems[0].bytes()
        ends = (".pem", ".key", ".both.pem")
        found = Certificate(*(self._folder / f"{name}{end}" for end in ends))
        found.cert.write_bytes(cert)
        found.key.write_bytes(secret)
        found.both.write_bytes(secret + cert)
        return found
