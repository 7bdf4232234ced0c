"""Groups of a broker before its first request, and of one that is stopped.

The client's process died of the second, and hung after the first (`group_deletion`).
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from perseid.errors import RetryableError
from perseid.topics import group_deletion
from perseid.topics.admin import TopicAdmin
from support.broker import KafkaServer

PAUSE_S = 5.0  # two questions and more go without an answer


def test_groups_are_deleted_before_any_group_was_there(tmp_path: Path) -> None:
    with KafkaServer(tmp_path) as server:
        topics = TopicAdmin(server.bootstrap, timeout_s=60.0)  # a busy machine: 50 partitions
        assert "__consumer_offsets" not in topics.client.list_topics(timeout=10).topics
        topics.delete_group(
            "unknown"
        )  # makes that topic, and waits until a group has a coordinator
        assert "__consumer_offsets" in topics.client.list_topics(timeout=10).topics
        server.pause()
        with pytest.raises(RetryableError, match=r"deleting consumer group unknown: .*_TIMED_OUT"):
            group_deletion.delete(server.bootstrap, "unknown", 1.0)
        timer = threading.Timer(PAUSE_S, server.resume)
        timer.start()
        topics.delete_group("unknown")
        timer.join()
