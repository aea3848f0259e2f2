"""OffsetFetch (9), versions 1-9: the committed offsets of groups.

Behaviour:
* Nothing committed, or an unknown group: offset -1, epoch -1, empty metadata, no error.
* NOT_COORDINATOR, never -1, while the group's part of the internal topic cannot be read.
* require_stable (v7): UNSTABLE_OFFSET_COMMIT for a partition of which a transaction has committed
  an offset and is not decided (KIP-447).

Version notes:
* v2: null topics ask for everything the group has; an error of its own. v5: leader epochs.
* v6: flexible. v8: several groups at once (KIP-709).
* v9: member id and epoch, looked at for consumer groups (KIP-848) only, which are not here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple

from penstock_broker.api.authorization import Operation, ResourceType, allowed, require
from penstock_broker.api.context import Exchange, Services, Steps
from penstock_broker.api.registry import api
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.groups.offset_records import CommittedOffset
from penstock_broker.log.keys import TopicPartition
from penstock_broker.wire.messages.offset_fetch import (
    API_KEY,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

NOTHING = CommittedOffset(-1, -1, "", -1)


class GroupOffsets(NamedTuple):
    """What a group has committed, and where a transaction may soon commit something else."""

    committed: Mapping[TopicPartition, CommittedOffset]
    undecided: Set[TopicPartition]

    def at(self, topic: str, partition: int) -> tuple[CommittedOffset, ErrorCode]:
        """The answer for one partition."""
        place = (topic, partition)
        if place in self.undecided:
            return NOTHING, ErrorCode.UNSTABLE_OFFSET_COMMIT
        return self.committed.get(place, NOTHING), ErrorCode.NONE


def _offsets(services: Services, group_id: str, require_stable: bool) -> GroupOffsets:
    committed = services.groups.offsets.of(group_id)
    undecided = services.groups.offsets.undecided(group_id) if require_stable else set()
    return GroupOffsets(committed, undecided)


def refuse(request: OffsetFetchRequest, error: KafkaError, version: int) -> OffsetFetchResponse:
    if version >= 8:
        return OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code)
                for group in request.groups
            ]
        )
    return OffsetFetchResponse(
        error_code=error.code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=p, committed_offset=-1, error_code=error.code
                    )
                    for p in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ],
    )


@api(API_KEY, OffsetFetchRequest, refuse=refuse)
def offset_fetch(services: Services, exchange: Exchange, request: OffsetFetchRequest) -> Steps:
    if exchange.api_version >= 8:
        groups = []
        for group in {group.group_id: group for group in request.groups}.values():
            groups.append(_group_offsets(services, exchange, group, request.require_stable))
            yield
        return OffsetFetchResponse(groups=groups)
    require(services, exchange, Operation.DESCRIBE, ResourceType.GROUP, request.group_id)
    offsets = _offsets(services, request.group_id, request.require_stable)
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index,
                        committed_offset=found.offset,
                        committed_leader_epoch=found.leader_epoch,
                        metadata=found.metadata,
                        error_code=code,
                    )
                    for index, found, code in partitions
                ],
            )
            for name, partitions in _look_up(services, exchange, offsets, request.topics)
        ]
    )


def _group_offsets(
    services: Services, exchange: Exchange, group: OffsetFetchRequestGroup, require_stable: bool
) -> OffsetFetchResponseGroup:
    try:
        require(services, exchange, Operation.DESCRIBE, ResourceType.GROUP, group.group_id)
        offsets = _offsets(services, group.group_id, require_stable)
    except KafkaError as error:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code)
    return OffsetFetchResponseGroup(
        group_id=group.group_id,
        topics=[
            OffsetFetchResponseTopics(
                name=name,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=index,
                        committed_offset=found.offset,
                        committed_leader_epoch=found.leader_epoch,
                        metadata=found.metadata,
                        error_code=code,
                    )
                    for index, found, code in partitions
                ],
            )
            for name, partitions in _look_up(services, exchange, offsets, group.topics)
        ],
    )


def _look_up(
    services: Services,
    exchange: Exchange,
    offsets: GroupOffsets,
    topics: Iterable[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None,
) -> list[tuple[str, list[tuple[int, CommittedOffset, ErrorCode]]]]:
    """(topic, [(partition, offset, error)]) of what is asked for; when that is None, of everything
    that the client may know of."""

    def may_describe(name: str, *, quiet: bool = False) -> bool:
        return allowed(
            services, exchange, Operation.DESCRIBE, ResourceType.TOPIC, name, quiet=quiet
        )

    found: dict[str, list[tuple[int, CommittedOffset, ErrorCode]]] = {}
    if topics is None:
        for name, partition in offsets.committed:
            found.setdefault(name, []).append((partition, *offsets.at(name, partition)))
        return [(name, each) for name, each in found.items() if may_describe(name, quiet=True)]
    answers = []
    for topic in topics:
        name = topic.name
        if may_describe(name):
            rows = [(p, *offsets.at(name, p)) for p in topic.partition_indexes]
        else:
            denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            rows = [(p, NOTHING, denied) for p in topic.partition_indexes]
        answers.append((name, rows))
    return answers
