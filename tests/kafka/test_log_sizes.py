"""The bytes of a log, asked of a real broker."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from penstock_platform.kafka.cluster import KafkaCluster
from penstock_platform.kafka.errors import ClusterError, UnknownTopicError
from penstock_platform.kafka.log_sizes import largest_replicas, log_sizes, smallest_volume
from penstock_platform.kafka.model import Volume
from penstock_platform.settings import KafkaSettings, Settings

RECORDS, RECORD_BYTES = 200, 1000


def test_the_bytes_of_each_partition(kafka: KafkaCluster, cluster_settings: Settings) -> None:
    kafka.create("sized", 3)
    producer = Producer({"bootstrap.servers": cluster_settings.bootstrap_servers})
    for number in range(RECORDS):
        producer.produce("sized", b"x" * RECORD_BYTES, partition=number % 2)
    assert producer.flush(30) == 0
    sizes = kafka.log_sizes("sized")
    found = sizes.by_partition
    assert sorted(found) == [0, 1, 2]
    assert found[2] == 0
    half = RECORDS // 2 * RECORD_BYTES
    assert all(half <= found[p] < 2 * half for p in (0, 1)), found
    with pytest.raises(UnknownTopicError):
        kafka.log_sizes("never-there")
    assert sizes.volume is not None
    assert 0 <= sizes.volume.free_bytes <= sizes.volume.total_bytes
    assert sizes.volume.total_bytes > 2 * half


def test_a_partition_that_no_broker_reports_is_named(cluster_settings: Settings) -> None:
    with pytest.raises(ClusterError, match=r"no broker reports .* partitions \[0\]"):
        log_sizes(cluster_settings, "never-there", [0])


def test_a_broker_that_is_away_is_named(cluster_settings: Settings) -> None:
    address = KafkaSettings(bootstrap_servers="127.0.0.1:1")
    away = cluster_settings.model_copy(update={"kafka": address})
    with pytest.raises(ClusterError, match=r"127\.0\.0\.1:1: cannot describe the log directories"):
        log_sizes(away, "sized", [0])


def replica(partition: int, size: int, *, future: bool = False) -> dict[str, object]:
    return {"partition_index": partition, "partition_size": size, "is_future_key": future}


def test_of_several_replicas_the_largest_counts_and_none_twice() -> None:
    def broker(*partitions: dict[str, object]) -> dict[str, object]:
        topics = [
            {"name": "t", "partitions": list(partitions)},
            {"name": "other", "partitions": [replica(0, 999)]},
        ]
        return {"log_dirs": [{"error_code": 0, "topics": topics}]}

    answers = [
        broker(replica(0, 10), replica(1, 7)),
        broker(replica(0, 12), replica(1, 3)),
        broker(replica(0, 11), replica(1, 500, future=True)),
    ]
    assert largest_replicas(answers, "t") == {0: 12, 1: 7}


@pytest.mark.parametrize(
    "volumes,smallest",
    [
        ([("t", 100, 50), ("t", 1000, 40), ("other", 1000, 1)], (1000, 40)),
        ([("t", -1, -1)], None),  # an older broker
        ([("t", 100, 0), ("t", -1, -1)], (100, 0)),
        ([("other", 100, 1)], None),
        ([], None),
    ],
)
def test_of_the_volumes_that_hold_the_topic_the_fullest_counts(
    volumes: list[tuple[str, int, int]], smallest: tuple[int, int] | None
) -> None:
    folders = [
        {
            "topics": [{"name": name, "partitions": [replica(0, 1)]}],
            "total_bytes": total,
            "usable_bytes": usable,
        }
        for name, total, usable in volumes
    ]
    found = smallest_volume([{"log_dirs": folders}], "t")
    assert found == (Volume(*smallest) if smallest else None)


def test_a_folder_without_a_replica_or_without_sizes_is_not_counted() -> None:
    empty = {"topics": [{"name": "t", "partitions": []}], "total_bytes": 9, "usable_bytes": 1}
    silent = {"topics": [{"name": "t", "partitions": [replica(0, 1)]}]}
    assert smallest_volume([{"log_dirs": [empty, silent]}], "t") is None
