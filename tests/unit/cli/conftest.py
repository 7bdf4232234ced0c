"""What several files of these tests plan with."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def failure() -> dict[str, Any]:
    """Two failed partitions, and room for the cheaper one."""
    return {
        "partitions": [{"id": "p1", "cost": 0.2}, {"id": "p2", "cost": 1.4}],
        "queries": [
            {"id": "q1", "priority": 3, "partitions": ["p1"]},
            {"id": "q2", "partitions": ["p1", "p2"]},
        ],
        "failed": ["p1", "p2"],
        "free": 1.5,
    }
