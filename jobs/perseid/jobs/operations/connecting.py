"""From the settings of a deployment to the connections that applying jobs needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from perseid.clocks import SystemClock
from perseid.jobs.operations.applying import Cluster
from perseid.records import Deployment
from perseid.registry.facade import Registry


@contextmanager
def connected(deployment: Deployment) -> Iterator[Cluster]:
    """Connections to the deployment's parts, closed at the end."""
    from perseid.state.durability.store import open_store
    from perseid.topics.admin import TopicAdmin
    from perseid.topics.schema_registry import open_all

    registry = Registry.connect(deployment)
    schema_registries = open_all(deployment.schema_registries)
    try:
        yield Cluster(
            registry, TopicAdmin(deployment.brokers()), open_store(deployment.store), SystemClock(),
            deployment.jobs_allow_code, schema_registries,
        )  # fmt: skip
    finally:
        registry.close()
        for opened in schema_registries.values():
            opened.close()
