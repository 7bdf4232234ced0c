"""The environment in which operators run: the same on every host.

An epoch that another worker computes again must give the same bytes. So all host settings that
change results are fixed here: time zone, locale, default encoding, the order of sets (`hash` of
text), and the number of threads, which decides the order of floating-point sums. All other
variables are passed on unchanged. An interpreter reads these variables at its start only, so the
driver's process restarts itself with them (`settle`). Its JVM and its Python workers inherit them;
executors elsewhere get them from Spark's settings (`session.SETTINGS`). The processor cannot be
fixed: vectorised sums may differ in the last bit between generations of processors.
"""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Callable, Mapping

from perseid.errors import UsageError

VARIABLES: Mapping[str, str] = {
    "TZ": "UTC",
    "LC_ALL": "C.UTF-8",
    "LANG": "C.UTF-8",
    "LANGUAGE": "",
    "PYTHONUTF8": "1",
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",  # a task has one core anyway
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
}

SETTLED = "PERSEID_SETTLED"  # process id of a process that has restarted itself


def settle(
    environment: Mapping[str, str] | None = None,
    become: Callable[[str, list[str], Mapping[str, str]], object] = os.execve,
) -> None:
    """Restarts the process when `environment` (its own) differs; then it does not return.

    UsageError when the process was restarted and the environment still differs.
    """
    found = os.environ if environment is None else environment
    me = str(os.getpid())  # unchanged by a restart
    for name, value in VARIABLES.items():
        if found.get(name) == value:
            continue
        if found.get(SETTLED) == me:
            raise UsageError(
                f"the worker starts itself with {name}={value}, and finds {found.get(name)!r}: "
                "something that Python runs as it starts (sitecustomize.py, a .pth file) sets it, "
                "so operators would give other results here than elsewhere; take it out"
            )
        become(sys.executable, sys.orig_argv, {**found, **VARIABLES, SETTLED: me})
        return


def check_user(uid: int) -> None:
    """UsageError when the user has no name: the JVM's Hadoop requires one."""
    try:
        pwd.getpwuid(uid)
    except KeyError:
        raise UsageError(
            f"the worker runs as user id {uid}, which has no entry in /etc/passwd, and Spark "
            f"starts for no user without a name: add the line "
            f"`perseid:x:{uid}:{os.getgid()}::/tmp:/bin/sh` there, or run it as a user that has "
            "one (10001 in perseid's image)"
        ) from None
