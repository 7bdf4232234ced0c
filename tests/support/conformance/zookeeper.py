"""All scripts for ZooKeeper."""

from __future__ import annotations

from support.conformance import zookeeper_nodes, zookeeper_sessions

SCRIPTS = [*zookeeper_nodes.SCRIPTS, *zookeeper_sessions.SCRIPTS]
