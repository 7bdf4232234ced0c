"""Deletes a consumer group in a separate process: `python -m ... < order`.

librdkafka's admin requests to a group coordinator are not safe (2.16; its issue 4605, open). If the
answer arrives after the time limit, because the broker was paused or is still creating its first
coordinator, the process is aborted, or hangs without limit when the client is freed. So a separate
process, which may end in any way, sends such a request, and the request is repeated.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from perseid.errors import PermanentError, PerseidError, RetryableError
from perseid.records.access import Access, Bootstrap, Brokers
from perseid.topics import clients

_ASK_S = 2.0  # the limit of one request
_STARTS_S = 20.0  # start of a process on a busy host


def delete(bootstrap: Bootstrap, group: str, timeout_s: float) -> None:
    """Deletes a group; a missing one is no error.

    Raises:
        PermanentError: the brokers refuse it.
        RetryableError: no answer in `timeout_s`, or the client broke.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        # The first request about a group makes a new broker create its offsets topic; until that is
        # loaded, the group has no coordinator. A client that asks meanwhile may wait until its own
        # time limit: so each request is short and repeated.
        try:
            _ask_in_child(bootstrap, group, min(_ASK_S, timeout_s))
            return
        except RetryableError:
            if time.monotonic() > deadline_s:
                raise


def _ask_in_child(bootstrap: Bootstrap, group: str, timeout_s: float) -> None:
    what = f"deleting consumer group {group}"
    order = {"brokers": _encoded(bootstrap), "group": group, "timeout_s": timeout_s}
    try:
        child = subprocess.run(
            [sys.executable, "-m", "perseid.topics.group_deletion"], check=False,
            input=json.dumps(order), capture_output=True, text=True, timeout=timeout_s + _STARTS_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise RetryableError(f"{what}: no answer in {timeout_s:g} s") from None
    if child.returncode != 0:
        cause = child.stderr.strip()[-500:]
        raise RetryableError(f"{what}: the client's process ended with {child.returncode}: {cause}")
    answer = json.loads(child.stdout)
    if answer["error"] is not None:
        raise (PermanentError if answer["permanent"] else RetryableError)(answer["error"])


def _encoded(bootstrap: Bootstrap) -> dict[str, Any]:
    """Contains no secret: the other process reads it from the same place as this one."""
    access = bootstrap.access.model_dump() if isinstance(bootstrap, Brokers) else None
    return {"bootstrap": str(bootstrap), "access": access}


def _decoded(encoded: Mapping[str, Any]) -> Bootstrap:
    access = encoded["access"]
    if access is None:
        return str(encoded["bootstrap"])
    return Brokers(encoded["bootstrap"], Access.model_validate(access))


def _ask(bootstrap: Bootstrap, group: str, timeout_s: float) -> None:
    from confluent_kafka import KafkaError, KafkaException

    client = clients.admin(bootstrap)
    asked = client.delete_consumer_groups([group], request_timeout=timeout_s)
    try:
        asked[group].result(timeout_s + 1)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
            what = f"deleting consumer group {group}"
            raise clients.as_error(error.args[0], what, client) from error


def main() -> None:
    """Answers with one line of JSON; frees nothing, because that may hang."""
    order = json.load(sys.stdin)
    answer: dict[str, Any] = {"error": None, "permanent": False}
    try:
        _ask(_decoded(order["brokers"]), order["group"], order["timeout_s"])
    except (PerseidError, TimeoutError) as error:
        cause = str(error) or f"no answer in {order['timeout_s']:g} s"
        answer = {"error": cause, "permanent": isinstance(error, PermanentError)}
    sys.stdout.write(json.dumps(answer))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
