"""How many bytes a topic's log takes on its brokers' disks (DescribeLogDirs, KIP-113, KIP-827).

librdkafka has no call for it; kafka-python has, for any Kafka since 1.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kafka.errors import KafkaError  # type: ignore[import-untyped]

from penstock_platform.kafka.errors import ClusterError
from penstock_platform.kafka.model import LogSizes, Volume
from penstock_platform.kafka.protocol_client import protocol_client
from penstock_platform.settings import Settings


def log_sizes(settings: Settings, topic: str, partitions: Iterable[int]) -> LogSizes:
    """Bytes of each partition's log: of its largest replica, not of all of them together. And the
    space that is left to them.

    Raises ClusterError: no answer, a refusal (it needs DESCRIBE on the cluster), or a partition
    that no broker reports.
    """
    wanted = sorted(partitions)
    try:
        with protocol_client(settings) as client:
            answers = client.describe_log_dirs({topic: wanted})
    except KafkaError as error:
        raise ClusterError(
            f"{settings.bootstrap_servers}: cannot describe the log directories of topic {topic}: "
            f"{error!r}"
        ) from error
    found = largest_replicas(answers, topic)
    if missing := [p for p in wanted if p not in found]:
        refused = sorted({d["error_code"] for a in answers for d in a["log_dirs"]} - {0})
        why = f"; Kafka's errors {refused}" if refused else ""
        raise ClusterError(
            f"{settings.bootstrap_servers}: no broker reports the size of topic {topic} partitions "
            f"{missing}{why}. DescribeLogDirs needs the right DESCRIBE on the cluster"
        )
    return LogSizes({p: found[p] for p in wanted}, smallest_volume(answers, topic))


def largest_replicas(answers: Iterable[Mapping[str, Any]], topic: str) -> dict[int, int]:
    """The size of each partition's largest replica; replicas that are being moved do not count."""
    found: dict[int, int] = {}
    for answer in answers:
        for folder in answer["log_dirs"]:
            for described in folder["topics"]:
                if described["name"] != topic:
                    continue
                for p in described["partitions"]:
                    if not p["is_future_key"]:
                        number = int(p["partition_index"])
                        found[number] = max(found.get(number, 0), int(p["partition_size"]))
    return found


def smallest_volume(answers: Iterable[Mapping[str, Any]], topic: str) -> Volume | None:
    """Of the volumes that hold replicas of the topic, the one with the least space left."""
    found = [
        Volume(int(folder["total_bytes"]), int(folder["usable_bytes"]))
        for answer in answers
        for folder in answer["log_dirs"]
        if any(t["name"] == topic and t["partitions"] for t in folder["topics"])
        and folder.get("total_bytes", -1) > 0
        and folder.get("usable_bytes", -1) >= 0
    ]
    return min(found, key=lambda volume: volume.free_bytes, default=None)
