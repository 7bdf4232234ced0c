"""The only place that makes Redis clients, and the rights that their user needs.

Only bounded numbers are stored, as text; scripts, settings and other users' keys are not
accessible: a user with `rights` is all that a deployment needs, and `default` may be off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perseid.records.access import SYSTEM, Access

if TYPE_CHECKING:
    from redis import Redis


def prefix(deployment: str) -> str:
    """The prefix of a deployment's keys."""
    return f"perseid:{deployment}:"


def rights(deployment: str) -> str:
    """The rules of `ACL SETUSER` for the user of a deployment; PING and TIME are for `doctor`."""
    return (
        f"resetkeys ~{prefix(deployment)}* resetchannels -@all "
        "+get +set +watch +unwatch +multi +exec +discard "
        "+hello +auth +select +ping +time +client|setinfo"
    )


def connect(url: str, access: Access, timeout_s: float, **over: Any) -> Redis:
    """A client that is not connected yet; over rediss:// it verifies the server's name.

    UsageError when the password or a certificate cannot be read.
    """
    from redis import Redis

    if url.startswith("rediss://"):
        access.check_files()
        over |= {
            "ssl_cert_reqs": "required", "ssl_check_hostname": True,
            "ssl_ca_certs": None if access.ca == SYSTEM else access.ca,
            "ssl_certfile": access.cert, "ssl_keyfile": access.key,
        }  # fmt: skip
    if access.user is not None:
        over |= {"username": access.user, "password": access.password()}
    found: Redis = Redis.from_url(
        url, socket_timeout=timeout_s, socket_connect_timeout=timeout_s, **over
    )
    return found
