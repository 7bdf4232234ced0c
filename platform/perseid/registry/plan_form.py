"""The JSON of a plan, which versions of this protocol share that know a job as one fragment.

They have an `owner` and no assignments. Of a plan with several fragments they see no owner, so they
run nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perseid.records import WHOLE

Body = Mapping[str, Any]


def written(body: Body) -> Body:
    """The body of a plan as it is stored."""
    owners = [assignment["owner"] for assignment in body["assignments"]]
    return {**body, "owner": owners[0] if len(owners) == 1 else None}


def read(body: Body) -> Body:
    """A stored body with assignments; without them, the job is one fragment."""
    if "assignments" in body:
        return body
    whole = {
        "fragment": WHOLE, "gids": None, "owner": body["owner"],
        "generation": body["generation"], "from_epoch": body["base_epoch"],
    }  # fmt: skip
    return {**body, "assignments": [whole]}
