"""The load generator and the verifier as processes of their own.

They share no interpreter with the command that runs them: a burst of lines does not delay its
observations, and the verifier runs none of the engine's code.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import Any

from perseid.errors import PermanentError

_CLOSE_TIMEOUT_S = 130.0  # the generator's own flush takes up to 120 s when the broker is away
_RATE_STEP = 0.05  # smaller changes of the rate are not worth an order


class LoadGenerator:
    """A generator that takes orders. `sent` counts lines that Kafka has acknowledged."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        records: int,
        seed: int | None,
        extra: tuple[str, ...] = (),
    ) -> None:
        command = [
            sys.executable, "-m", "perseid.testing.generator", "--controlled",
            "--kafka", bootstrap, "--topic", topic, "--records", str(records), *extra,
        ]  # fmt: skip
        if seed is not None:
            command += ["--seed", str(seed)]
        self.sent = 0
        self.seed = seed
        self._order = (0.0, 0)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._started = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> LoadGenerator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def order(self, rate: float, limit: int) -> None:
        """Allows lines up to `limit` in all, at `rate` a second."""
        old_rate, old_limit = self._order
        if limit == old_limit and abs(rate - old_rate) <= _RATE_STEP * old_rate:
            return
        if self._process.poll() not in {None, 0}:
            raise PermanentError(f"the generator ended with exit code {self._process.returncode}")
        self._order = (rate, limit)
        self._write({"rate": rate, "limit": limit})

    def await_seed(self) -> int:
        """The seed of the lines, chosen by the generator when none was given."""
        self._started.wait(60)
        if self.seed is None:
            raise PermanentError("the generator did not start")
        return self.seed

    def close(self) -> None:
        """Ends the generator; what it has sent is acknowledged when this returns."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            try:
                self._process.stdin.close()
            except BrokenPipeError:
                pass
        try:
            self._process.wait(_CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(5)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _write(self, order: dict[str, Any]) -> None:
        if self._process.stdin is None:
            return
        try:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return  # it has sent all; an error shows at the next order or in `close`

    def _read(self) -> None:
        if self._process.stdout is None:
            return
        for line in self._process.stdout:
            facts = json.loads(line)
            if "seed" in facts:
                self.seed = facts["seed"]
                self._started.set()
            self.sent = facts.get("sent", self.sent)


def judge(bootstrap: str, source: str, sink: str, *, check: str = "wordcount") -> dict[str, Any]:
    """The verifier's verdict on the current content of the two topics."""
    done = subprocess.run(
        [
            sys.executable, "-m", "perseid.testing.verify", check,
            "--kafka", bootstrap, "--source", source, "--sink", sink,
        ],
        stdout=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    if done.returncode not in {0, 1} or not done.stdout:
        raise PermanentError(f"the verifier ended with exit code {done.returncode}, see above")
    verdict: dict[str, Any] = json.loads(done.stdout)
    return verdict


def measure(what: str, bootstrap: str, sink: str, **options: Any) -> Any:
    """The measurements of `perseid.testing.meter` at a sink. False options are left out."""
    given = {name.replace("_", "-"): v for name, v in options.items() if v is not False}
    flags = [f"--{name}" if v is True else f"--{name}={v}" for name, v in given.items()]
    done = subprocess.run(
        [
            sys.executable, "-m", "perseid.testing.meter", what,
            "--kafka", bootstrap, "--sink", sink, *flags,
        ],
        stdout=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise PermanentError(f"the meter ended with exit code {done.returncode}, see above")
    return json.loads(done.stdout)
