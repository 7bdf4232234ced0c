"""Where the API listens, and whether it may: without tokens only on loopback addresses."""

from __future__ import annotations

import argparse
import ipaddress
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from perseid.errors import RefusedError, UsageError

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Listening:
    """Settings of one coordinator's API. Port 0: any free one. `url`: how others reach it."""

    host: str = LOOPBACK
    port: int = 0
    tokens: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    url: str | None = None

    def __post_init__(self) -> None:
        """RefusedError if the API would be open to any host, UsageError for half a file pair."""
        if not 0 <= self.port <= 65535:
            raise UsageError(f"--api-port {self.port}: expected 0 (any free one) to 65535")
        if (self.cert is None) != (self.key is None):
            raise UsageError("--api-cert and --api-key go together: give both files, or neither")
        if self.tokens is None and not is_loopback(self.host):
            raise RefusedError(
                f"--api-host {self.host}: who reaches that address could stop and remove jobs; "
                "make a token file with `perseid tokens new NAME --role admin --file FILE` and "
                f"give it with --api-tokens FILE, or listen on {LOOPBACK}"
            )

    @property
    def scheme(self) -> str:
        return "https" if self.cert is not None else "http"

    def url_of(self, port: int) -> str:
        """How others reach the API at `port`; for a wildcard address, by this machine's name."""
        if self.url is not None:
            return self.url.rstrip("/")
        host = socket.gethostname() if self.host in ("0.0.0.0", "::", "") else self.host
        return f"{self.scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address. The only accepted name is `localhost`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


_OPTIONS = {
    "host": "address to listen at; another one than loopback needs --api-tokens",
    "port": "port to listen at; 0, the default, is any free one",
    "tokens": "file with the tokens and roles of those who may call, see `perseid tokens new`",
    "cert": "certificate (PEM, with its chain): the API is then HTTPS",
    "key": "private key of the certificate (PEM)",
    "url": "how others reach the API, where that is not its host and port",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds --api-host and so on; their defaults come from the environment, as PERSEID_API_HOST."""
    for name, text in _OPTIONS.items():
        parser.add_argument(f"--api-{name}", help=f"{text} (PERSEID_API_{name.upper()})")


def listening(
    options: argparse.Namespace, environment: Mapping[str, str] = os.environ
) -> Listening:
    """The settings from the command line, else the environment, else the default."""
    given = {
        name: getattr(options, f"api_{name}") or environment.get(f"PERSEID_API_{name.upper()}")
        for name in _OPTIONS
    }
    port = given["port"] or "0"
    if not port.isascii() or not port.isdigit():
        raise UsageError(f"--api-port {port[:20]!r}: expected a number, 0 to 65535")
    files = {name: Path(found) for name in ("tokens", "cert", "key") if (found := given[name])}
    return Listening(given["host"] or LOOPBACK, int(port), url=given["url"] or None, **files)
