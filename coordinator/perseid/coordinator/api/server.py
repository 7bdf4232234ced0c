"""The HTTP server: the leader's state and calls, for the command line, the demo and tools."""

from __future__ import annotations

import socket
import ssl
import threading

import uvicorn
from fastapi import FastAPI

from perseid.coordinator.api import http_errors
from perseid.coordinator.api.guard import Guard, checked_and_logged
from perseid.coordinator.api.listening import Listening
from perseid.coordinator.api.routes import Backend, make_router
from perseid.errors import UsageError

CONNECTIONS_MAX = 200  # further ones are answered with 503 at once
DESCRIPTION = """\
Jobs of a perseid deployment. Every error is a `Problem`. Send `Authorization: Bearer TOKEN`, unless
the coordinator listens on loopback without tokens. Calls are answered by the leader; another
coordinator answers 503 and the leader's URL.
"""


def make_app(back: Backend, guard: Guard) -> FastAPI:
    """The whole app; `guard` decides who may call what."""
    app = FastAPI(
        title="perseid", version="1", description=DESCRIPTION, docs_url=None, redoc_url=None
    )
    http_errors.install(app)
    app.include_router(make_router(back, guard))
    app.middleware("http")(checked_and_logged)
    return app


class Api:
    """The server in a thread; its port is bound, and known, from the start."""

    def __init__(self, app: FastAPI, where: Listening | None = None) -> None:
        """Raises UsageError if it cannot listen at the address or use its certificate."""
        where = where or Listening()
        self._config = uvicorn.Config(
            app, log_config=None, log_level="warning", access_log=False, server_header=False,
            lifespan="off", limit_concurrency=CONNECTIONS_MAX, ssl_certfile=where.cert,
            ssl_keyfile=where.key,
        )  # fmt: skip
        _load(self._config, where)
        self._socket = _bound(where)
        self.url = where.url_of(self._socket.getsockname()[1])
        self._server = uvicorn.Server(self._config)
        self._thread = threading.Thread(target=self._serve, name="api", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(timeout=2.0)
        self._socket.close()

    def _serve(self) -> None:
        self._server.run(sockets=[self._socket])


def _load(config: uvicorn.Config, where: Listening) -> None:
    """Reads the certificate here, where the caller sees an error, not in the server's thread."""
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise UsageError(
            f"--api-cert {where.cert}, --api-key: cannot be used ({type(error).__name__}: "
            f"{error.strerror}); expected a certificate and its private key in PEM files"
        ) from None


def _bound(where: Listening) -> socket.socket:
    """A listening socket: connections before the server runs wait instead of being refused."""
    host = where.host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, where.port), family=family, backlog=128)
    except OSError as error:
        raise UsageError(
            f"cannot listen at {where.host}:{where.port}: {error.strerror}; choose another "
            "--api-host or --api-port (0 is any free port)"
        ) from None
