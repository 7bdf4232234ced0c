"""A confluent-kafka producer whose librdkafka client is known, so that batches can be queued to it.

confluent-kafka does not give its client away. But librdkafka reports each client
that it makes to its plugins, and the compiled kernels are one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import Producer

from perseid.errors import PermanentError
from perseid.kernels import build
from perseid.kernels.library import kernels
from perseid.topics.librdkafka import address_of


class BatchProducer(Producer):
    """Also has `client`, an `rd_kafka_t *`, which is valid as long as the producer is."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """`settings` are confluent-kafka's.

        Raises:
            PermanentError: librdkafka did not report its client.
        """
        library = kernels()
        library.perseid_kafka_watch(address_of("rd_kafka_conf_interceptor_add_on_new"))
        library.perseid_kafka_newest()  # forgets one that failed to start
        super().__init__({"plugin.library.paths": str(build.library()), **settings})
        client: int | None = library.perseid_kafka_newest()
        if client is None:
            raise PermanentError(
                "the Kafka client did not report itself to its plugin, which batches need; check "
                "that the installed confluent-kafka is a version that perseid's package allows"
            )
        self.client = client
