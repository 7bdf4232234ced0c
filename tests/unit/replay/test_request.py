"""What users type for a range, and what they are answered for other texts."""

from __future__ import annotations

import pytest

from perseid.errors import UsageError
from perseid.replay.request import Request, SourceOffsets, parsed, share_of


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"epochs": "100:200"}, Request(epochs=(100, 200))),
        ({"epochs": " 100 "}, Request(epochs=(100, 100))),
        ({"epochs": "100:"}, Request(epochs=(100, None))),
        ({"last": "1h"}, Request(last_ms=3_600_000)),
        ({"last": "1.5d"}, Request(last_ms=129_600_000)),
        ({"from_": "1970-01-01T00:00:01"}, Request(from_ms=1_000)),
        ({"to": "1970-01-01T02:00:00+02:00", "from_": None}, Request(to_ms=0)),
        (
            {"from_": "1970-01-01", "to": "1970-01-01T00:00:00.250Z"},
            Request(from_ms=0, to_ms=250),
        ),
        ({"offsets": "orders:3:7"}, Request(offsets=SourceOffsets("orders", 3, 7, 7))),
        ({"offsets": "a.b-c:0:7-9"}, Request(offsets=SourceOffsets("a.b-c", 0, 7, 9))),
    ],
)
def test_what_texts_mean(options: dict[str, str], expected: Request) -> None:
    assert parsed(**options) == expected


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "expected one of --epochs, --from and --to, --last, or --offsets, and none"),
        ({"epochs": "1", "last": "1h"}, "and several is given"),
        ({"epochs": "1:2", "from_": "2026-01-01"}, "and several is given"),
        ({"epochs": "200:100"}, "--epochs: the last one, 100, is below the first one, 200"),
        ({"epochs": "a:b"}, "--epochs 'a:b': expected FIRST:LAST such as 100:200"),
        ({"epochs": "-1"}, "--epochs '-1': expected FIRST:LAST"),
        ({"epochs": "9" * 400}, "expected FIRST:LAST"),
        ({"last": "1 week"}, """--last '1 week': expected a duration such as "500ms\""""),
        ({"last": "0s"}, "--last: expected a duration above 0"),
        ({"from_": "yesterday"}, "--from 'yesterday': expected a time from 1970 on"),
        ({"to": "1969-12-31"}, "--to '1969-12-31': expected a time from 1970 on"),
        ({"from_": "2026-01-02", "to": "2026-01-02"}, "--to: expected a time after that of --from"),
        ({"offsets": "orders:0"}, "--offsets 'orders:0': expected TOPIC:PARTITION:OFFSET"),
        ({"offsets": "orders:0:9-7"}, "--offsets: the last one, 7, is below the first one, 9"),
    ],
)
def test_what_is_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError) as refused:
        parsed(**options)
    assert words in str(refused.value)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("text", ["0", "-1/2", "17/16", "101%", "1/0", "a", "", "5%%", "5%x"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"--sample .*: expected a share such as 1/16 or 5%"):
        share_of(text)


@pytest.mark.parametrize(
    "options",
    [{"epochs": "7:9"}, {"epochs": "7:"}, {"last": "90m"}, {"offsets": "orders:3:7-9"},
     {"from_": "2026-01-01", "to": "2026-01-02"}, {"to": "2026-01-02"}],
)  # fmt: skip
def test_a_request_is_shown_as_its_options(options: dict[str, str]) -> None:
    """An audit's folder has it; other requests are shown otherwise."""
    words = str(parsed(**options)).split()
    names = {"--epochs": "epochs", "--last": "last", "--offsets": "offsets", "--from": "from_",
             "--to": "to"}  # fmt: skip
    again = {names[name]: value for name, value in zip(words[::2], words[1::2], strict=True)}
    assert parsed(**again) == parsed(**options)
