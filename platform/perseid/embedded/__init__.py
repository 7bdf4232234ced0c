"""The embedded cluster: Kafka, ZooKeeper, Redis, coordinators and workers on this machine.

Other packages use `Cluster`; `locate` and `deployment` give a cluster's folder and the addresses of
its parts, `processes` its processes.
"""

from perseid.embedded.cluster import Cluster
from perseid.embedded.paths import deployment, locate
from perseid.embedded.prepare import Outside
from perseid.embedded.table import ProcessInfo, processes

__all__ = ["Cluster", "Outside", "ProcessInfo", "deployment", "locate", "processes"]
