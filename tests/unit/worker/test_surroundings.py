"""What a host decides is the same in every process that runs operators."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from typing import Any

import pytest

from perseid.errors import UsageError
from perseid.worker.process import surroundings
from perseid.worker.spark import session

KNOWN = {entry.pw_uid for entry in pwd.getpwall()}

# A process as a worker is, and what its operators could see of the host.
PROGRAM = """
import json, locale, sys, time
from perseid.worker.process.surroundings import settle
settle()
print(json.dumps({
    "time": time.localtime(1_793_511_000).tm_hour, "hash": hash("a"),
    "set": list({"a", "b", "c", "d", "e"}), "file": locale.getpreferredencoding(False),
    "text": sys.stdout.encoding, "collate": locale.setlocale(locale.LC_ALL, ""),
    "own": __import__("os").environ["OWN"],
}))
"""
HOSTS = (
    {"TZ": "America/New_York", "LC_ALL": "POSIX", "PYTHONHASHSEED": "7", "OMP_NUM_THREADS": "8"},
    {"TZ": "Asia/Tokyo", "LANG": "C", "PYTHONUTF8": "0", "PYTHONHASHSEED": "random"},
)


def seen(host: dict[str, str]) -> Any:
    base = {n: v for n, v in os.environ.items() if n not in surroundings.VARIABLES}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**base, **host, "OWN": "kept"},
        capture_output=True, check=True, timeout=120,
    )  # fmt: skip
    return json.loads(ran.stdout)


def test_two_hosts_look_alike_to_operators() -> None:
    found = [seen(host) for host in HOSTS]
    assert found[0] == found[1]
    assert found[0]["time"] == 5
    assert (found[0]["file"], found[0]["text"]) == ("utf-8", "utf-8")
    assert found[0]["own"] == "kept"


def test_a_process_that_has_it_does_not_start_again() -> None:
    starts: list[Any] = []
    surroundings.settle({"OWN": "kept"}, lambda *how: starts.append(how))
    (_, arguments, environment) = starts.pop()
    assert arguments == sys.orig_argv
    settled = {surroundings.SETTLED: str(os.getpid())}
    assert environment == {"OWN": "kept", **surroundings.VARIABLES, **settled}
    surroundings.settle(environment, lambda *how: starts.append(how))
    assert starts == []


def test_an_environment_that_python_itself_changes_back_is_refused_and_no_endless_start() -> None:
    starts: list[Any] = []
    surroundings.settle({"SETTLED_BY": "a parent"}, lambda *how: starts.append(how))
    (_, _, environment) = starts.pop()
    changed = {**environment, "TZ": "Asia/Tokyo"}
    with pytest.raises(UsageError, match=r"TZ=UTC, and finds 'Asia/Tokyo'.*sitecustomize"):
        surroundings.settle(changed, lambda *how: starts.append(how))
    assert starts == []
    inherited = {**changed, surroundings.SETTLED: "1"}
    surroundings.settle(inherited, lambda *how: starts.append(how))
    assert len(starts) == 1


def test_executors_elsewhere_get_it_by_sparks_settings() -> None:
    for name, value in surroundings.VARIABLES.items():
        assert session.SETTINGS[f"spark.executorEnv.{name}"] == value


def test_a_user_id_without_a_name_is_refused_with_what_to_do() -> None:
    nobodys = next(uid for uid in range(50_000, 60_000) if uid not in KNOWN)
    with pytest.raises(UsageError, match=f"user id {nobodys}.*perseid:x:{nobodys}:"):
        surroundings.check_user(nobodys)
    surroundings.check_user(os.getuid())
