"""Metadata (3), versions 0-12: brokers, topics, partitions and their leaders.

Behaviour:
* One broker, which is the controller and the leader of everything.
* With an authorizer, topics that the client may not describe are TOPIC_AUTHORIZATION_FAILED when
  asked for by name, UNKNOWN_TOPIC_ID by id, and left out of "all"; creating one needs CREATE.
* Clients of a listener get the advertised address of that listener.
* An unknown topic is created when ``auto.create.topics.enable`` and the request allow it, and is
  in the same answer with its leaders; else UNKNOWN_TOPIC_OR_PARTITION. An invalid name is
  INVALID_TOPIC_EXCEPTION and creates nothing. The broker's own topics get the partitions and
  settings that their coordinators would give them.
* A topic that is named twice is in the answer once.
* Encoded topics are kept per version until the topic changes: a refresh of a thousand partitions
  by a hundred clients costs joining bytes.

Version notes:
* v0: an empty list asks for all topics; from v1 null does. v4: the auto-create flag.
* v7: leader epochs. v8: authorized operations. v9: flexible.
* v10: topic ids in the answer (KIP-516). v11: cluster operations are gone.
* v12: topics by id; before it, an id or a null name is INVALID_REQUEST. An id goes before a name.
"""

from __future__ import annotations

from collections.abc import Generator

from penstock_broker.api.assignments import check_replication
from penstock_broker.api.authorization import (
    Operation,
    ResourceType,
    allowed,
    cluster_operations,
    may_create_topic,
    require,
)
from penstock_broker.api.authorization import operations as topic_operations
from penstock_broker.api.context import Encoded, Exchange, Services, Steps
from penstock_broker.api.registry import api
from penstock_broker.api.topics import DEFAULT_PARTITIONS
from penstock_broker.cluster.topic import INTERNAL_TOPICS, Topic, check_topic_name
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.steps import Step
from penstock_broker.wire.messages.metadata import (
    API_KEY,
    FLEXIBLE_FROM,
    OPERATIONS_NOT_ASKED,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from penstock_broker.wire.primitives import write_uvarint
from penstock_broker.wire.schema import encode

IDS_SINCE = 12


def refuse(request: MetadataRequest, error: KafkaError, version: int) -> MetadataResponse:
    return MetadataResponse(
        brokers=[],
        topics=[
            MetadataResponseTopic(
                error_code=error.code, name=t.name or "", topic_id=t.topic_id, partitions=[]
            )
            for t in request.topics or ()
        ],
    )


@api(API_KEY, MetadataRequest, refuse=refuse)
def metadata(services: Services, exchange: Exchange, request: MetadataRequest) -> Steps:
    version = exchange.api_version
    wanted = request.topics
    if version < IDS_SINCE and any(t.name is None or t.topic_id.int for t in wanted or ()):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Topics by id are for version 12 and later.")
    topics: list[bytes] = []
    if wanted is None or (version == 0 and not wanted):
        for topic in services.topics.all():
            if _may_describe(services, exchange, topic.name, quiet=True):
                topics.append(_encoded(services, exchange, request, topic))
            yield
    else:
        for each in {(each.name, each.topic_id): each for each in wanted}.values():
            topics.append((yield from _topic(services, exchange, request, each)))
            yield
    operations = OPERATIONS_NOT_ASKED
    if request.include_cluster_authorized_operations:
        operations = cluster_operations(services, exchange)
    key = (version, exchange.session.listener_name, operations)
    head, tail = services.metadata_cache.frame(key, lambda: _frame(services, *key))
    count = len(topics)
    size = write_uvarint(count + 1) if version >= FLEXIBLE_FROM else count.to_bytes(4, "big")
    return Encoded(b"".join((head, size, *topics, tail)))


def _may_describe(
    services: Services, exchange: Exchange, name: str, *, quiet: bool = False
) -> bool:
    return allowed(services, exchange, Operation.DESCRIBE, ResourceType.TOPIC, name, quiet=quiet)


def _encoded(
    services: Services, exchange: Exchange, request: MetadataRequest, topic: Topic
) -> bytes:
    operations = OPERATIONS_NOT_ASKED
    if request.include_topic_authorized_operations:
        operations = topic_operations(services, exchange, ResourceType.TOPIC, topic.name)
    version = exchange.api_version
    return services.metadata_cache.topic(
        topic, version, operations, lambda: _encode(services, topic, version, operations)
    )


def _topic(
    services: Services,
    exchange: Exchange,
    request: MetadataRequest,
    wanted: MetadataRequestTopic,
) -> Generator[Step, None, bytes]:
    version = exchange.api_version
    try:
        topic = yield from _find(services, exchange, request, wanted)
    except KafkaError as error:
        name = None if wanted.topic_id.int else wanted.name
        return encode(
            MetadataResponseTopic(
                error_code=error.code, name=name, topic_id=wanted.topic_id, partitions=[]
            ),
            version,
        )
    return _encoded(services, exchange, request, topic)


def _find(
    services: Services,
    exchange: Exchange,
    request: MetadataRequest,
    wanted: MetadataRequestTopic,
) -> Generator[Step, None, Topic]:
    """A topic that is asked for, perhaps made for that. KafkaError: nothing is said of topics
    that the client may not know of, not even whether they are there."""
    name = wanted.name
    if name is None or wanted.topic_id.int:
        topic = services.topics.by_id(wanted.topic_id)
        if not _may_describe(services, exchange, topic.name):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        return topic
    require(services, exchange, Operation.DESCRIBE, ResourceType.TOPIC, name)
    if (
        request.allow_auto_topic_creation
        and services.config.auto_create_topics_enable
        and services.metadata.topic(name) is None
    ):
        if not may_create_topic(services, exchange, name):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return (yield from _create(services, name))
    check_topic_name(name)
    return services.topics.by_name(name)


def _create(services: Services, name: str) -> Generator[Step, None, Topic]:
    check_topic_name(name)
    try:
        if name in INTERNAL_TOPICS:
            return (yield from services.topics.creating_internal(name))
        check_replication(-1, services.config)
        return (yield from services.topics.creating(name, DEFAULT_PARTITIONS, {}))
    except KafkaError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
        return services.topics.by_name(name)  # another request makes it; unknown until it is there


def _encode(services: Services, topic: Topic, version: int, operations: int) -> bytes:
    """One topic; ``operations`` are the bits of what the client may do with it."""
    described = _describe(services, topic)
    described.topic_authorized_operations = operations
    return encode(described, version)


def _frame(
    services: Services, version: int, listener_name: str, operations: int
) -> tuple[bytes, bytes]:
    """What comes before the array of topics, and after it: with the address of the listener that
    was asked, and the bits of what the client may do with the cluster."""
    host, port = services.address_of(listener_name)
    broker_id = services.config.broker_id
    whole = encode(
        MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=broker_id, host=host, port=port)],
            cluster_id=services.metadata.cluster_id,
            controller_id=broker_id,
            topics=[],
            cluster_authorized_operations=operations,
        ),
        version,
    )
    flexible = version >= FLEXIBLE_FROM
    tail_size = (4 if 8 <= version <= 10 else 0) + (1 if flexible else 0)
    head_size = len(whole) - tail_size - (1 if flexible else 4)
    return whole[:head_size], whole[len(whole) - tail_size :]


def _describe(services: Services, topic: Topic) -> MetadataResponseTopic:
    broker_id = services.config.broker_id
    partitions = []
    for part in topic.partitions:
        index = part.index
        partition = services.replicas.find(topic.name, index)
        online = partition is not None and partition.is_online
        partitions.append(
            MetadataResponsePartition(
                error_code=ErrorCode.NONE if online else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=index,
                leader_id=broker_id if online else -1,
                leader_epoch=part.leader_epoch,
                replica_nodes=[broker_id],
                isr_nodes=[broker_id] if online else [],
                offline_replicas=[] if online else [broker_id],
            )
        )
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=partitions,
    )
