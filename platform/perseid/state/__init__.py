"""perseid.state: state of operators, its log on a host, its checkpoints in a store."""

from perseid.state.primitives import Primitive, bind, schema_of
from perseid.state.table import Table
from perseid.state.timers import Timers
from perseid.state.value import Value

__all__ = ["Primitive", "Table", "Timers", "Value", "bind", "schema_of"]
