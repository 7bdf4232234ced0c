"""Every control has tests, and the table shows what became of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.security import CONTROLS, Matrix, marked

TESTS = Path(__file__).parents[2]


def test_every_control_has_a_test() -> None:
    assert sorted(marked(TESTS)) == sorted(CONTROLS)


def test_a_control_without_a_test_is_seen(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(
        'import pytest\n@pytest.mark.security("5.1", "5.3")\ndef test_x(): ...\n'
    )
    assert marked(tmp_path) == {"5.1": ["test_one.py"], "5.3": ["test_one.py"]}


def test_the_worst_of_a_tests_phases_stays() -> None:
    matrix = Matrix()
    matrix.expect("a", ["5.1", "5.2"])
    matrix.expect("b", ["5.2"])
    for test, result in (("a", "passed"), ("a", "failed"), ("a", "passed"), ("b", "skipped")):
        matrix.note(test, result)
    matrix.note("of no control", "failed")
    assert matrix.counts("5.1") == {"failed": 1}
    assert matrix.counts("5.2") == {"failed": 1, "skipped": 1}
    assert not matrix.complete
    assert f"| 5.1 {CONTROLS['5.1']} | `a` | failed |" in matrix.markdown()
    assert "5.3 none ran" not in matrix.markdown() and "none ran" in matrix.markdown()


@pytest.mark.parametrize("controls", [[], ["5.99"]])
def test_a_marker_names_controls_that_there_are(controls: list[str]) -> None:
    with pytest.raises(ValueError, match=r"expected some of \['5.1'"):
        Matrix().expect("a", controls)
