"""Signed reports: what was altered, cut off, or signed by another key is refused, in words."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from hypothesis import given
from hypothesis import strategies as st

from perseid.errors import BadInputError, DamagedFile, UsageError
from perseid.replay import reports, signing
from support.audit_reports import example

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(32))
REPORT = reports.as_json(example())
ENVELOPE = signing.sign(REPORT, KEY)


def changed(**fields: Any) -> str:
    return json.dumps(json.loads(ENVELOPE) | fields)


def b64(text: bytes) -> str:
    return base64.b64encode(text).decode()


def test_a_signed_report_is_read_as_it_was_signed() -> None:
    found = signing.verify(ENVELOPE, [OTHER.public_key(), KEY.public_key()])
    assert found == (REPORT, signing.key_id(KEY.public_key()))
    assert reports.from_json(found.report) == example()
    assert signing.unverified(ENVELOPE) == REPORT


def test_what_is_signed_is_as_the_specification_has_it() -> None:
    """The test vector of DSSE version 1."""
    assert (
        signing.encoded("http://example.com/HelloWorld", b"hello world")
        == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )
    assert signing.encoded("é", b"") == b"DSSEv1 2 \xc3\xa9 0 "


def test_an_altered_payload_is_refused() -> None:
    report = REPORT.replace('"diverged"', '"equal"')
    assert report != REPORT
    with pytest.raises(DamagedFile, match=r"does not fit the report.*was altered or damaged"):
        signing.verify(changed(payload=b64(report.encode())), [KEY.public_key()])


@given(st.integers(0, 8 * 64 - 1))
def test_an_altered_signature_is_refused(bit: int) -> None:
    (one,) = json.loads(ENVELOPE)["signatures"]
    signature = bytearray(base64.b64decode(one["sig"]))
    signature[bit // 8] ^= 1 << bit % 8
    with pytest.raises(DamagedFile, match="does not fit the report"):
        signing.verify(
            changed(signatures=[one | {"sig": b64(bytes(signature))}]), [KEY.public_key()]
        )


@given(st.integers(0, len(ENVELOPE) - 3))
def test_a_truncated_file_is_refused(length: int) -> None:
    with pytest.raises(BadInputError, match="no envelope of DSSE: expected one JSON object"):
        signing.verify(ENVELOPE[:length], [KEY.public_key()])


def test_another_key_is_refused() -> None:
    with pytest.raises(BadInputError, match="signed by an unknown key") as caught:
        signing.verify(ENVELOPE, [OTHER.public_key()])
    for key in (KEY, OTHER):
        assert signing.key_id(key.public_key()) in str(caught.value)


def test_the_name_of_a_known_key_does_not_make_a_signature_valid() -> None:
    (one,) = json.loads(signing.sign(REPORT, OTHER))["signatures"]
    forged = changed(signatures=[one | {"keyid": signing.key_id(KEY.public_key())}])
    with pytest.raises(DamagedFile):
        signing.verify(forged, [KEY.public_key()])


def test_one_signature_of_a_known_key_is_enough_and_needs_no_name() -> None:
    (ours,) = json.loads(ENVELOPE)["signatures"]
    (theirs,) = json.loads(signing.sign(REPORT, OTHER))["signatures"]
    both = changed(signatures=[theirs, {"sig": ours["sig"]}])
    assert signing.verify(both, [KEY.public_key()]).report == REPORT


def test_both_alphabets_of_base64_are_read() -> None:
    document = json.loads(signing.sign("~~~???" * 30, KEY))
    payload = document["payload"].replace("+", "-").replace("/", "_")
    assert payload != document["payload"]
    (one,) = document["signatures"]
    url_safe = one | {"sig": one["sig"].replace("+", "-").replace("/", "_")}
    text = json.dumps(document | {"payload": payload, "signatures": [url_safe]})
    assert signing.verify(text, [KEY.public_key()]).report == "~~~???" * 30


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[" * 100_000, "expected one JSON object"),
        ("[]", "expected a JSON object with payloadType"),
        (REPORT, "a report that is not signed cannot be verified"),
        (changed(payloadType="application/vnd.in-toto+json"), "an envelope of application/vnd.in"),
        (changed(payloadType=None), "an envelope of None, expected application/vnd.perseid"),
        (changed(payload=None), "`payload` is not in base64"),
        (changed(payload="a!"), "`payload` is not in base64"),
        (changed(payload="ä"), "`payload` is not in base64"),
        (changed(signatures=[]), "`signatures` is no list of at least one object"),
        (changed(signatures=["a"]), "`signatures` is no list of at least one object"),
        (changed(signatures=[{"keyid": "a"}]), "`sig` is not in base64"),
        (changed(signatures=[{"keyid": "\x1b[2J", "sig": ""}]), r"it names \\x1b\[2J, and"),
    ],
)
def test_what_is_no_envelope(text: str, error: str) -> None:
    with pytest.raises(BadInputError, match=error):
        signing.verify(text, [KEY.public_key()])


def test_new_keys(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "keys"
    key = signing.new_key(folder)
    assert (folder / "audit.key").stat().st_mode & 0o777 == 0o600
    private = signing.private_key(folder / "audit.key")
    assert private.private_bytes_raw() == key.private_bytes_raw()
    public = signing.public_key(folder / "audit.pub")
    assert signing.verify(signing.sign(REPORT, private), [public]).report == REPORT


def test_a_key_id_is_the_hash_that_others_compute(tmp_path: Path) -> None:
    key = signing.new_key(tmp_path)
    lines = (tmp_path / "audit.pub").read_text().splitlines()
    der = base64.b64decode("".join(lines[1:-1]))
    assert signing.key_id(key.public_key()) == hashlib.sha256(der).hexdigest()


@pytest.mark.parametrize("name", ["audit.key", "audit.pub"])
def test_a_key_is_never_replaced(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("there")
    with pytest.raises(UsageError, match=r"has audit\.key or audit\.pub already"):
        signing.new_key(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "there"


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"file/keys: NotADirectoryError"):
        signing.new_key(tmp_path / "file" / "keys")


def private_file(path: Path, text: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(text)
    path.chmod(mode)
    return path


def pem(key: Any, password: bytes | None = None) -> bytes:
    protection = BestAvailableEncryption(password) if password else NoEncryption()
    text: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, protection)
    return text


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_private_key_that_others_can_read_is_refused(mode: int, tmp_path: Path) -> None:
    path = private_file(tmp_path / "audit.key", pem(KEY), mode)
    with pytest.raises(UsageError, match=rf"audit\.key has mode {mode:04o}.*`chmod 600`"):
        signing.private_key(path)


@pytest.mark.parametrize(
    ("mode", "owner", "fault"),
    [
        (0o600, 7, ""),
        (0o400, 7, ""),
        (0o640, 7, "has mode 0640"),
        (0o640, 0, ""),
        (0o660, 0, "has mode 0660"),
        (0o644, 0, "has mode 0644"),
        (0o600, 8, "belongs to another user"),
    ],
)
def test_whose_a_private_key_may_be(mode: int, owner: int, fault: str) -> None:
    found = signing.access_fault(mode, owner, us=7)
    assert found.startswith(fault) and bool(found) == bool(fault)


def test_private_keys_that_are_none(tmp_path: Path) -> None:
    def read(text: bytes) -> None:
        signing.private_key(private_file(tmp_path / "audit.key", text))

    with pytest.raises(UsageError, match=r"cannot be read: No such file.*`perseid audits keys"):
        signing.private_key(tmp_path / "absent.key")
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        signing.private_key(tmp_path)
    with pytest.raises(UsageError, match="expected a private key in PEM"):
        read(b"")
    with pytest.raises(UsageError, match="expected a private key in PEM"):
        read(pem(KEY)[:60])
    with pytest.raises(UsageError, match="has a password"):
        read(pem(KEY, b"secret"))
    with pytest.raises(UsageError, match="is a key of EC, expected one of Ed25519"):
        read(pem(ec.generate_private_key(ec.SECP256R1())))


def test_public_keys_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "audit.pub"
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        signing.public_key(path)
    path.write_bytes(pem(KEY))
    with pytest.raises(UsageError, match=r"is a private key.*name its audit\.pub"):
        signing.public_key(path)
    path.write_text("ssh-ed25519 AAAA")
    with pytest.raises(UsageError, match="expected a public key in PEM"):
        signing.public_key(path)
    foreign = ec.generate_private_key(ec.SECP256R1()).public_key()
    path.write_bytes(foreign.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    with pytest.raises(UsageError, match=r"is a key of EC.*, expected one of Ed25519"):
        signing.public_key(path)
