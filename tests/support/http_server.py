"""An HTTP server of a test's own: werkzeug's, in a thread while it is needed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.wrappers import Request, Response


class _Quiet(WSGIRequestHandler):
    def log_request(self, *_: object) -> None:
        """Writes nothing to the tests' terminal."""


@contextmanager
def running(answer: Callable[[Request], Response]) -> Iterator[str]:
    """Yields the server's address; afterwards it does not answer."""
    application = Request.application(answer)
    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=_Quiet)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
