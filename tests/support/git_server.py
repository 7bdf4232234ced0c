"""A git server for tests: `git http-backend` over HTTP on loopback, and repositories to serve.

No part of it is a mock: a client receives git's own answers.
"""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

_WHO = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "gc.auto=0")


def git(folder: Path, *arguments: str, stdin: bytes = b"") -> str:
    """Runs git as its user would; returns its output without the last newline."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    environment |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        ["git", *_WHO, "-C", str(folder), *arguments], input=stdin, capture_output=True,
        env=environment, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"git {arguments}: {done.stderr.decode()}")
    return done.stdout.decode().strip()


class Origin:
    """A bare repository for any tree, also one that no `git add` would make."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True)
        git(path, "init", "--quiet", "--bare", "--initial-branch=main")

    def blob(self, content: bytes) -> str:
        return git(self.path, "hash-object", "-w", "--stdin", stdin=content)

    def tree(self, entries: dict[str, tuple[str, str]]) -> str:
        """Makes a tree from mode and id by name."""
        kinds = {"040000": "tree", "160000": "commit"}
        lines = [f"{m} {kinds.get(m, 'blob')} {i}\t{n}\0" for n, (m, i) in entries.items()]
        return git(self.path, "mktree", "-z", "--missing", stdin="".join(lines).encode())

    def files(self, files: dict[str, bytes | str]) -> dict[str, tuple[str, str]]:
        """Returns entries for files by path; folders become trees."""
        entries: dict[str, tuple[str, str]] = {}
        folders: dict[str, dict[str, bytes | str]] = {}
        for path, content in files.items():
            top, _, rest = path.partition("/")
            if rest:
                folders.setdefault(top, {})[rest] = content
            else:
                data = content.encode() if isinstance(content, str) else content
                entries[top] = ("100644", self.blob(data))
        return entries | {n: ("040000", self.tree(self.files(f))) for n, f in folders.items()}

    def commit(
        self, entries: dict[str, tuple[str, str]], *, ref: str = "refs/heads/main",
        on: str | None = None, key: Path | None = None,
    ) -> str:  # fmt: skip
        """Commits the entries and sets the ref to the commit; `on`: its parent, "" for none.

        `key`: the ssh key that signs it.
        """
        if on is None:
            try:
                on = git(self.path, "rev-parse", "--verify", "--quiet", ref)
            except RuntimeError:
                on = ""
        parent = ["-p", on] if on else []
        sign = ["-c", "gpg.format=ssh", "-c", f"user.signingKey={key}"] if key else []
        flags = ["-S"] if key else []
        made = git(self.path, *sign, "commit-tree", self.tree(entries), *parent, *flags, "-m", "x")
        git(self.path, "update-ref", ref, made)
        return made


class GitServer:
    """Serves the repositories in `folder`; `login` ("user:password") restricts access.

    `asked` has the path of each request, and `refused` counts those without the login.
    """

    def __init__(self, folder: Path, login: str | None = None, port: int = 0) -> None:
        self.folder, self.login = folder, login
        self.asked: list[str] = []
        self.refused = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stops answering at its address."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(server: GitServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # a fetch is one connection, as with git's own servers

        def do_GET(self) -> None:
            self._serve()

        def do_POST(self) -> None:
            self._serve()

        def log_message(self, *_: Any) -> None:
            return

        def _serve(self) -> None:
            server.asked.append(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            if server.login is not None:
                wanted = "Basic " + base64.b64encode(server.login.encode()).decode()
                if self.headers.get("Authorization") != wanted:
                    server.refused += 1
                    self.send_response(401)
                    self.send_header("WWW-Authenticate", 'Basic realm="jobs"')
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
            self._answer(_backend(server.folder, self, body))

        def _answer(self, response: bytes) -> None:
            head, _, content = response.partition(b"\r\n\r\n")
            headers = [line.split(": ", 1) for line in head.decode().split("\r\n") if line]
            found = dict((name, value) for name, value in headers)
            self.send_response(int(found.pop("Status", "200").split()[0]))
            for name, value in found.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    return Handler


def _backend(folder: Path, request: BaseHTTPRequestHandler, body: bytes) -> bytes:
    path, _, query = request.path.partition("?")
    environment = {
        **os.environ, "GIT_PROJECT_ROOT": str(folder), "GIT_HTTP_EXPORT_ALL": "1",
        "PATH_INFO": path, "QUERY_STRING": query, "REQUEST_METHOD": request.command,
        "CONTENT_TYPE": request.headers.get("Content-Type", ""),
        "CONTENT_LENGTH": str(len(body)), "REMOTE_ADDR": "127.0.0.1",
        "HTTP_CONTENT_ENCODING": request.headers.get("Content-Encoding", ""),
        "GIT_PROTOCOL": request.headers.get("Git-Protocol", ""),
        "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1",
    }  # fmt: skip
    done = subprocess.run(
        ["git", "-c", "safe.directory=*", "http-backend"], input=body, capture_output=True,
        env=environment, check=False,
    )  # fmt: skip
    return done.stdout


def main(folder: str, port: str) -> None:
    """`python git_server.py FOLDER PORT`: serves until it is ended."""
    with GitServer(Path(folder), port=int(port)):
        threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:3])
