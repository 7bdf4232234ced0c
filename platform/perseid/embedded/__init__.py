"""The embedded cluster: Kafka, ZooKeeper, Redis, coordinators and workers on this machine.

`Cluster` is what others use; `locate` and `deployment` answer where a cluster is and how to reach
its parts, `processes` who runs.
"""

from perseid.embedded.cluster import Cluster
from perseid.embedded.paths import deployment, locate
from perseid.embedded.prepare import Outside
from perseid.embedded.table import ProcessInfo, processes

__all__ = ["Cluster", "Outside", "ProcessInfo", "deployment", "locate", "processes"]
