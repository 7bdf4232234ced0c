"""Signed reports: an Ed25519 signature over the JSON form, in an envelope of DSSE version 1.

The envelope (https://github.com/secure-systems-lab/dsse) contains the report itself, so the bytes
that are read are the bytes that were signed. A key's id is the SHA-256 of the public key as DER
(SubjectPublicKeyInfo), which `openssl pkey -pubin -in audit.pub -outform DER | sha256sum` prints.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from perseid.errors import BadInputError, DamagedFile, UsageError
from perseid.errors.texts import cut
from perseid.state.durability.files import write_file

PAYLOAD_TYPE = "application/vnd.perseid.audit+json"
PRIVATE, PUBLIC = "audit.key", "audit.pub"  # the files of `new_key`
_MAKE = "`perseid audits keys FOLDER` makes a pair of keys"


class Verified(NamedTuple):
    """The signed report, as JSON, and the id of the key that signed it."""

    report: str
    key_id: str


def new_key(folder: Path) -> Ed25519PrivateKey:
    """Makes `audit.key`, which only its owner can read, and `audit.pub` in `folder`.

    Raises UsageError if one of them is there already, or the folder cannot be written.
    """
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / PUBLIC).exists():
            raise FileExistsError(f"{folder / PUBLIC}")
        write_file(str(folder / PRIVATE), [private], sync=True, mode=0o600)
        write_file(str(folder / PUBLIC), [public], sync=True)
    except FileExistsError:
        raise UsageError(
            f"{folder}: has {PRIVATE} or {PUBLIC} already, and reports that they signed could no "
            "longer be verified; name another folder"
        ) from None
    except OSError as error:
        raise UsageError(f"{folder}: {type(error).__name__}: {error}") from None
    return key


def key_id(key: Ed25519PublicKey) -> str:
    """64 hexadecimal digits."""
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def private_key(path: Path) -> Ed25519PrivateKey:
    """Reads a private key. Raises UsageError: missing, readable by others, another kind of key."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            text = file.read()
        fault = access_fault(stat.S_IMODE(status.st_mode), status.st_uid, os.geteuid())
        if fault:
            raise UsageError(f"the key {path} {fault}")
        key = load_pem_private_key(text, None)
    except OSError as error:
        raise UsageError(f"the key {path} cannot be read: {_fault(error)}; {_MAKE}") from None
    except TypeError:
        raise UsageError(
            f"the key {path} has a password; expected one without, which file modes protect"
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise UsageError(f"{path}: expected a private key in PEM; {_MAKE}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError(f"{path}: is a key of {_kind(key)}, expected one of Ed25519; {_MAKE}")
    return key


def public_key(path: Path) -> Ed25519PublicKey:
    """Reads a public key. Raises UsageError: missing, a private key, another kind of key."""
    try:
        text = path.read_bytes()
        if b"PRIVATE KEY" in text:
            raise UsageError(
                f"{path}: is a private key, which verifying does not need; name its {PUBLIC}"
            )
        key = load_pem_public_key(text)
    except OSError as error:
        raise UsageError(f"the key {path} cannot be read: {_fault(error)}") from None
    except (ValueError, UnsupportedAlgorithm):
        raise UsageError(f"{path}: expected a public key in PEM, such as {PUBLIC}") from None
    if not isinstance(key, Ed25519PublicKey):
        raise UsageError(f"{path}: is a key of {_kind(key)}, expected one of Ed25519")
    return key


def sign(report: str, key: Ed25519PrivateKey) -> str:
    """The envelope of a report in its JSON form."""
    payload = report.encode()
    signature = {
        "keyid": key_id(key.public_key()),
        "sig": base64.b64encode(key.sign(encoded(PAYLOAD_TYPE, payload))).decode(),
    }
    envelope = {
        "payloadType": PAYLOAD_TYPE,
        "payload": base64.b64encode(payload).decode(),
        "signatures": [signature],
    }
    return json.dumps(envelope, indent=1) + "\n"


def verify(envelope: str, public_keys: Iterable[Ed25519PublicKey]) -> Verified:
    """The report in `envelope`, if one of `public_keys` has signed it.

    Raises BadInputError if it is no envelope of a report or no key is known, and DamagedFile if
    the signature of a known key does not fit.
    """
    document = _document(envelope)
    payload, signatures = _payload(document), _signatures(document)
    keys = {key_id(key): key for key in public_keys}
    fitting = [
        (name, signature)
        for named, signature in signatures
        for name in keys
        if named in (name, "")  # the name is a hint, and may be left out
    ]
    if not fitting:
        raise BadInputError(
            f"the report was signed by an unknown key: it names {_listed(n for n, _ in signatures)}"
            f", and the keys given are {_listed(keys)}; ask the signer for the public key on a way "
            "that you trust, and name it with --key"
        )
    message = encoded(PAYLOAD_TYPE, payload)
    for name, signature in fitting:
        try:
            keys[name].verify(signature, message)
        except InvalidSignature:
            continue
        return Verified(payload.decode("utf-8", "replace"), name)
    raise DamagedFile(
        f"the signature of the key {fitting[0][0]} does not fit the report: the report or the "
        "signature was altered or damaged after it was signed; get the file from the signer again"
    )


def encoded(payload_type: str, payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding: what is signed."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def is_envelope(document: Any) -> bool:
    """Whether a JSON value is meant as an envelope; it may be damaged."""
    return isinstance(document, dict) and "payloadType" in document


def unverified(envelope: str) -> str:
    """The report in `envelope`, of which no signature is verified. Raises BadInputError."""
    return _payload(_document(envelope)).decode("utf-8", "replace")


def _document(envelope: str) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(envelope)
    except (ValueError, RecursionError):
        raise BadInputError(
            "no envelope of DSSE: expected one JSON object, found text that is cut off or no JSON"
        ) from None
    if not is_envelope(document):
        raise BadInputError(
            "no envelope of DSSE: expected a JSON object with payloadType, payload and signatures; "
            "a report that is not signed cannot be verified"
        )
    if document["payloadType"] != PAYLOAD_TYPE:
        raise BadInputError(
            f"an envelope of {cut(str(document['payloadType'])[:100])}, expected {PAYLOAD_TYPE}"
        )
    return document


def _payload(document: dict[str, Any]) -> bytes:
    return _bytes(document.get("payload"), "payload")


def _signatures(document: dict[str, Any]) -> list[tuple[str, bytes]]:
    """Key id and signature of each."""
    listed = document.get("signatures")
    if not isinstance(listed, list) or not listed or not all(isinstance(s, dict) for s in listed):
        raise BadInputError("no envelope of DSSE: `signatures` is no list of at least one object")
    return [(str(one.get("keyid", "")), _bytes(one.get("sig"), "sig")) for one in listed]


def _bytes(value: Any, name: str) -> bytes:
    """DSSE allows both alphabets of base64."""
    try:
        return base64.b64decode(value.translate(str.maketrans("-_", "+/")), validate=True)
    except (ValueError, AttributeError):
        raise BadInputError(f"no envelope of DSSE: `{name}` is not in base64") from None


def access_fault(mode: int, owner: int, us: int) -> str:
    """Why a private key's file is not protected, or "". `owner`, `us`: user ids.

    PostgreSQL's rule: the file is ours and for us alone, or root's and at most readable by a group
    of ours, as container platforms mount secrets.
    """
    if owner not in (us, 0):
        return "belongs to another user; expected your own, or root"
    allowed = 0o000 if owner == us else 0o040
    if mode & 0o077 & ~allowed:
        return (
            f"has mode {mode:04o}, so other users can read or replace it; type `chmod 600`, and "
            "make new keys if others had access"
        )
    return ""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(cut(name[:64]) or "no key" for name in list(names)[:5]) or "none"


def _kind(key: object) -> str:
    return type(key).__name__.strip("_").removesuffix("PrivateKey").removesuffix("PublicKey")


def _fault(error: OSError) -> str:
    return error.strerror or type(error).__name__
