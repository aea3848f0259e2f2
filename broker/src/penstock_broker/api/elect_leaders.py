"""ElectLeaders (43), versions 0-2: let partitions choose their leader again.

Behaviour:
* The only replica leads already: ELECTION_NOT_NEEDED, for a preferred election as for an unclean
  one. Where its log is offline no replica can: PREFERRED_LEADER_NOT_AVAILABLE, or
  ELIGIBLE_LEADERS_NOT_AVAILABLE for an unclean election.
* When all partitions are asked for (null), those that need nothing are left out.
* A partition that is not there is UNKNOWN_TOPIC_OR_PARTITION, an unknown type of election
  INVALID_REQUEST.

Version notes:
* v0: preferred elections only. v1: unclean ones, and an error of its own (KIP-460). v2: flexible.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock_broker.api.authorization import Operation, require_cluster
from penstock_broker.api.context import Exchange, Reply, Services
from penstock_broker.api.registry import api
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.wire.messages.elect_leaders import (
    API_KEY,
    ELECTION_PREFERRED,
    ELECTION_UNCLEAN,
    ElectLeadersPartitionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ReplicaElectionResult,
)


def refuse(request: ElectLeadersRequest, error: KafkaError, version: int) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        error_code=error.code,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[_result(index, error) for index in topic.partitions],
            )
            for topic in request.topic_partitions or ()
        ],
    )


@api(API_KEY, ElectLeadersRequest, refuse=refuse)
def elect_leaders(services: Services, exchange: Exchange, request: ElectLeadersRequest) -> Reply:
    require_cluster(services, exchange, Operation.ALTER)
    kind = request.election_type
    if kind not in {ELECTION_PREFERRED, ELECTION_UNCLEAN} and request.topic_partitions != []:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {kind}")
    if request.topic_partitions is None:
        return ElectLeadersResponse(
            replica_election_results=_results(
                (topic.name, _offline(services, topic.name, len(topic.partitions), kind))
                for topic in services.topics.all()
            )
        )
    return ElectLeadersResponse(
        replica_election_results=_results(
            (
                topic.topic,
                [_elect(services, topic.topic, index, kind) for index in topic.partitions],
            )
            for topic in request.topic_partitions
        )
    )


def _results(
    found: Iterable[tuple[str, list[ElectLeadersPartitionResult]]],
) -> list[ReplicaElectionResult]:
    return [
        ReplicaElectionResult(topic=name, partition_result=results)
        for name, results in found
        if results
    ]


def _offline(
    services: Services, topic: str, count: int, kind: int
) -> list[ElectLeadersPartitionResult]:
    results = (_elect(services, topic, index, kind) for index in range(count))
    return [r for r in results if r.error_code != ErrorCode.ELECTION_NOT_NEEDED]


def _elect(services: Services, topic: str, index: int, kind: int) -> ElectLeadersPartitionResult:
    if services.metadata.topic(topic) is None:
        error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic}")
    elif not services.replicas.has_partition(topic, index):
        error = KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic}-{index}"
        )
    else:
        partition = services.replicas.find(topic, index)
        if partition is not None and partition.is_online:
            error = KafkaError(ErrorCode.ELECTION_NOT_NEEDED)
        elif kind == ELECTION_PREFERRED:
            error = KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
        else:
            error = KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
    return _result(index, error)


def _result(index: int, error: KafkaError) -> ElectLeadersPartitionResult:
    return ElectLeadersPartitionResult(
        partition_id=index, error_code=error.code, error_message=str(error)
    )
