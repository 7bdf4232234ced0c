"""What a job is, and what a job's own module imports.

A module starts with `from perseid.jobs import Operator, Table, pa`.
"""

import pyarrow as pa

from perseid.jobs.operator import Emitter, Operator
from perseid.state import Matrix, Pool, Set, Table, Timers, Value, Vector

__all__ = [
    "Emitter", "Matrix", "Operator", "Pool", "Set", "Table", "Timers", "Value", "Vector", "pa",
]  # fmt: skip
