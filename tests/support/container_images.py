"""Docker and images of this work tree for the deployment ring of `perseid test`.

Missing parts are provided where possible: the packages on request, the daemon as root, the images
by compose/build-offline. Otherwise the ring runs on the embedded cluster and reports that.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from perseid.embedded.waiting import WaitedInVain, until
from perseid.errors import RefusedError

PACKAGES = ("docker.io", "docker-compose", "debootstrap", "iptables")  # Debian's
COMMANDS = ("dockerd", "docker-compose", "debootstrap", "iptables")
OFFLINE = "offline/"  # the prefix of build-offline's images
PREFIX = "PERSEID_IMAGES"
WHY_NOT = "PERSEID_NO_CONTAINERS"  # the reason that the ring reports
INSTALL_S, BUILD_S, DAEMON_S, DAEMON_POLL_S = 600, 1200, 60.0, 0.2
NICE = 10  # of the build, which runs next to tests with deadlines


@contextmanager
def images(root: Path, folder: Path, *, install: bool) -> Iterator[Future[str]]:
    """Yields the future value of PERSEID_IMAGES; the images are built concurrently.

    Its RefusedError has the reason when there will be none. Logs go into `folder`. A daemon that
    was started here is stopped at the end.
    """
    started: list[subprocess.Popen[bytes]] = []
    with ThreadPoolExecutor(1, "perseid-images") as pool:
        made = pool.submit(_checked, root, folder, started, install=install)
        try:
            yield made
        finally:
            if not made.cancel():
                made.exception()  # a build is not interrupted; the daemon stops after it
            for daemon in started:
                daemon.terminate()
                daemon.wait(30)


def _checked(
    root: Path, folder: Path, started: list[subprocess.Popen[bytes]], *, install: bool
) -> str:
    try:
        return _made(root, folder, started, install=install)
    except OSError as error:
        raise RefusedError(f"no images: {error}") from None


def _made(
    root: Path, folder: Path, started: list[subprocess.Popen[bytes]], *, install: bool
) -> str:
    if os.environ.get(PREFIX) is not None:
        return os.environ[PREFIX]  # the user's own
    if install:
        _install(folder)
    _start(folder, started)
    log = folder / "build-offline.log"
    _logged(["nice", "-n", str(NICE), str(root / "compose" / "build-offline")], log, BUILD_S)
    return OFFLINE


def _install(folder: Path) -> None:
    if all(shutil.which(command) for command in COMMANDS):
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise RefusedError("--install-docker needs root and Debian's apt-get")
    log = folder / "install-docker.log"
    _logged(["apt-get", "update"], log, INSTALL_S)
    _logged(["apt-get", "install", "-y", "--no-install-recommends", *PACKAGES], log, INSTALL_S)


def _start(folder: Path, started: list[subprocess.Popen[bytes]]) -> None:
    """Starts the daemon if none answers and we are allowed to."""
    if _answers():
        return
    if shutil.which("dockerd") is None or shutil.which("docker") is None:
        raise RefusedError(
            "there is no Docker: `perseid test --install-docker` installs it (Debian)"
        )
    if os.geteuid() != 0:
        raise RefusedError("no Docker daemon answers, and only root could start it")
    with (folder / "dockerd.log").open("wb") as log:
        daemon = subprocess.Popen(
            ["dockerd"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    started.append(daemon)

    def there() -> bool:
        if daemon.poll() is not None:
            raise WaitedInVain("it has ended")
        return _answers()

    try:
        until(there, DAEMON_S, "dockerd to answer", DAEMON_POLL_S)
    except WaitedInVain:
        raise RefusedError(f"dockerd does not start: {_last(folder / 'dockerd.log')}") from None


def _answers() -> bool:
    if shutil.which("docker") is None:
        return False
    asked = subprocess.run(["docker", "version"], check=False, capture_output=True, timeout=30)
    return asked.returncode == 0


def _logged(command: list[str], log: Path, timeout_s: float) -> None:
    with log.open("ab") as file:
        try:
            ran = subprocess.run(
                command, check=False, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                timeout=timeout_s, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise RefusedError(f"{command[0]} took over {timeout_s:g} s") from None
    if ran.returncode != 0:
        raise RefusedError(f"{' '.join(command[:4])}: {_last(log)}")


def _last(log: Path) -> str:
    words = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return " / ".join(words[-2:])
