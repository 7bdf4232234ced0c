"""HTTP: what the leader knows, for the command line, the demo and tools. Loopback only."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import uvicorn
from fastapi import FastAPI
from fastapi.responses import JSONResponse

HOST = "127.0.0.1"


def make_app(status: Callable[[], dict[str, Any] | None]) -> FastAPI:
    """`status` gives the leader's view, or None while this coordinator stands by."""
    app = FastAPI(title="perseid", docs_url=None, redoc_url=None)

    @app.get("/healthz")
    def healthz() -> dict[str, Any]:
        """200 as long as this process lives; `leader` says whether it leads."""
        return {"ok": True, "leader": status() is not None}

    @app.get("/api/v1/status", response_model=None)
    def api_status() -> dict[str, Any] | JSONResponse:
        """Workers, jobs, lag, checkpoints and rates; 503 from a coordinator that stands by."""
        found = status()
        if found is None:
            return JSONResponse({"error": "this coordinator does not lead"}, status_code=503)
        return found

    return app


class Api:
    """The server in a thread; its port is free and known from the start."""

    def __init__(self, app: FastAPI) -> None:
        self._socket = socket.socket()
        self._socket.bind((HOST, 0))
        self._socket.listen()  # who connects before the server runs waits instead of being refused
        port: int = self._socket.getsockname()[1]
        self.url = f"http://{HOST}:{port}"
        config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name="api", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(timeout=2.0)
        self._socket.close()

    def _serve(self) -> None:
        self._server.run(sockets=[self._socket])
