"""What a broker answers that nobody has asked anything yet."""

from __future__ import annotations

from pathlib import Path

from perseid.testing.broker import KafkaServer
from perseid.topics.admin import TopicAdmin


def test_groups_are_deleted_before_any_group_was_there(tmp_path: Path) -> None:
    with KafkaServer(tmp_path) as server:
        topics = TopicAdmin(server.bootstrap, timeout_s=60.0)  # a busy machine: 50 partitions
        assert "__consumer_offsets" not in topics.client.list_topics(timeout=10).topics
        topics.delete_group("nobody")  # makes that topic, and waits until a group has a coordinator
        assert "__consumer_offsets" in topics.client.list_topics(timeout=10).topics
