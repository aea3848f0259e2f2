"""OffsetForLeaderEpoch: where a leader epoch of a partition ends today, on any Kafka.

librdkafka asks it for its own consumers only, so kafka-python's protocol classes do, as in
``batches.py``. The request carries the leader epoch that the caller saw: a leader of another one
refuses it, and nothing is concluded from answers of two leaders.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka.errors import KafkaError  # type: ignore[import-untyped]
from kafka.protocol.consumer import OffsetForLeaderEpochRequest  # type: ignore[import-untyped]

from penstock_platform.kafka.errors import ClusterError
from penstock_platform.kafka.protocol_client import partition_leaders, protocol_client
from penstock_platform.settings import Settings

VERSION_MIN, VERSION_MAX = 2, 4  # v2 takes the current leader epoch (KIP-320)


def epoch_ends(
    settings: Settings, topic: str, epochs: Mapping[int, int], current: Mapping[int, int]
) -> dict[int, int]:
    """Where these leader epochs end, by partition: the first offset of a later epoch, or the log's
    end; -1 where the log knows of none of them.

    ``current``: the leader epoch of each partition now. Raises ClusterError when a leader does not
    answer, or is of another epoch.
    """
    found: dict[int, int] = {}
    if not epochs:
        return found
    try:
        with protocol_client(settings) as client:
            leaders = partition_leaders(client, topic)
            for p in sorted(epochs):
                request = _request(topic, p, epochs[p], current[p])
                answer = _send(client, leaders[p], request)
                if answer.error_code:
                    raise ClusterError(
                        f"{settings.bootstrap_servers}: cannot ask where leader epoch {epochs[p]} "
                        f"of topic {topic} partition {p} ends: Kafka's error {answer.error_code}"
                    )
                found[p] = int(answer.end_offset)
    except (KafkaError, KeyError, ValueError) as error:
        raise ClusterError(
            f"{settings.bootstrap_servers}: cannot ask where leader epochs of topic {topic} end: "
            f"{error!r}"
        ) from error
    return found


def _request(topic: str, partition: int, epoch: int, current: int) -> Any:
    wanted = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    return OffsetForLeaderEpochRequest(
        min_version=VERSION_MIN,
        max_version=VERSION_MAX,
        replica_id=-1,
        topics=[
            wanted(
                topic=topic,
                partitions=[
                    wanted.OffsetForLeaderPartition(
                        partition=partition, current_leader_epoch=current, leader_epoch=epoch
                    )
                ],
            )
        ],
    )


def _send(client: Any, leader: int, request: Any) -> Any:
    # The client's own loop does the sending; it has no public call for a request of one's own.
    async def send() -> Any:
        return await client._manager.send(request, node_id=leader)

    return client._manager.run(send).topics[0].partitions[0]
