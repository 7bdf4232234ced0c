"""Types of columns: what job files may contain has one meaning in Arrow."""

import pyarrow as pa

from perseid.jobs.library import parameters, totals
from perseid.jobs.model.column_types import ARROW_TYPES
from perseid.jobs.model.spec import COLUMN_TYPES
from perseid.worker.formats import decode


def test_every_type_of_job_files_has_one_meaning() -> None:
    assert tuple(ARROW_TYPES) == COLUMN_TYPES
    users = [vars(module)["ARROW_TYPES"] for module in (parameters, totals, decode)]
    assert all(user is ARROW_TYPES for user in users)


def test_sources_and_operators_agree() -> None:
    columns: dict[str, str] = {name.upper(): name for name in COLUMN_TYPES}
    wanted = pa.schema([(column, ARROW_TYPES[kind]) for column, kind in columns.items()])
    assert decode.make("json", columns, None).schema == wanted
