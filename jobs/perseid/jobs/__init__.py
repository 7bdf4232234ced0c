"""What a job is, and what a job's own module needs.

A module starts with `from perseid.jobs import Operator, Table, Timers, Value, pa`.
"""

import pyarrow as pa

from perseid.jobs.operator import Emitter, Operator
from perseid.state import Table, Timers, Value

__all__ = ["Emitter", "Operator", "Table", "Timers", "Value", "pa"]
