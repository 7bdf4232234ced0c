"""The environment in which operators run: the same on every host, whatever the host's own is.

An epoch that another worker computes again must give the same bytes. So what a host decides, and
the interpreter, the C library or a numerical library takes into account, is set here: time zone,
locale and default encoding, the order of sets (`hash` of text), and threads, whose number decides
in which order floating-point numbers are added. All other variables are passed on as they are.

The driver's process takes it on by starting itself anew (`settle`), since an interpreter reads
these once; its JVM and its Python workers inherit it, and executors elsewhere get it by Spark's
settings (`session.SETTINGS`). Not settable is what the processor does: results of a vectorised sum
may differ in the last bit between generations of processors.
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

SETTLED = "PERSEID_SETTLED"  # process id of who has started itself anew


def settle(
    environment: Mapping[str, str] | None = None,
    become: Callable[[str, list[str], Mapping[str, str]], object] = os.execve,
) -> None:
    """Does not return where `environment` (this process's) is another: the process starts anew.

    UsageError where it has done so, and something has changed the environment back.
    """
    found = os.environ if environment is None else environment
    me = str(os.getpid())  # stays the same
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
    """UsageError where the user has no name: the JVM's Hadoop asks for one, and takes no other."""
    try:
        pwd.getpwuid(uid)
    except KeyError:
        raise UsageError(
            f"the worker runs as user id {uid}, which has no entry in /etc/passwd, and Spark "
            f"starts for no user without a name: add the line "
            f"`perseid:x:{uid}:{os.getgid()}::/tmp:/bin/sh` there, or run it as a user that has "
            "one (10001 in perseid's image)"
        ) from None
