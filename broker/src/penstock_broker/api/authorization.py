"""What each API asks of the authorizer, and the answers that mean no: Apache Kafka's, all of them.

| API | operation on resource | refused with |
|---|---|---|
| Produce | WRITE topic; WRITE transactional id | TOPIC_…; TRANSACTIONAL_ID_… for all |
| Fetch | READ topic; CLUSTER_ACTION for replicas | TOPIC_… |
| ListOffsets, OffsetForLeaderEpoch | DESCRIBE topic | TOPIC_… |
| Metadata, DescribeTopicPartitions | DESCRIBE topic | TOPIC_…; UNKNOWN_TOPIC_ID, or left out |
| Metadata that makes a topic | CREATE cluster, else CREATE topic | TOPIC_… |
| DescribeCluster | none (authorized operations: DESCRIBE cluster) | |
| OffsetCommit | READ group; READ topic | GROUP_…; TOPIC_… |
| OffsetFetch | DESCRIBE group; DESCRIBE topic | GROUP_…; TOPIC_…, or left out |
| FindCoordinator | DESCRIBE group or transactional id | GROUP_…; TRANSACTIONAL_ID_… |
| JoinGroup, SyncGroup, Heartbeat, LeaveGroup | READ group | GROUP_… |
| DescribeGroups | DESCRIBE group | GROUP_… |
| ListGroups | DESCRIBE cluster, else DESCRIBE group | left out |
| DeleteGroups | DELETE group | GROUP_… |
| OffsetDelete | DELETE group; READ topic | GROUP_…; TOPIC_… |
| CreateTopics | CREATE cluster, else CREATE topic | TOPIC_… |
| CreateTopics, settings in the answer | DESCRIBE_CONFIGS topic | TOPIC_… |
| DeleteTopics | DELETE topic | TOPIC_… |
| CreatePartitions | ALTER topic | TOPIC_… |
| DeleteRecords | DELETE topic | TOPIC_… |
| DescribeConfigs | DESCRIBE_CONFIGS topic, group, cluster | TOPIC_…; GROUP_…; CLUSTER_… |
| AlterConfigs, IncrementalAlterConfigs | ALTER_CONFIGS of the same | the same |
| InitProducerId | WRITE transactional id | TRANSACTIONAL_ID_… |
| InitProducerId without one | IDEMPOTENT_WRITE cluster, else WRITE any topic | CLUSTER_… |
| AddPartitionsToTxn | WRITE transactional id; WRITE topic | TRANSACTIONAL_ID_…; TOPIC_… |
| AddOffsetsToTxn | WRITE transactional id; READ group | TRANSACTIONAL_ID_…; GROUP_… |
| EndTxn | WRITE transactional id | TRANSACTIONAL_ID_… |
| TxnOffsetCommit | WRITE transactional id; READ group; READ topic | each its own |
| DescribeProducers | READ topic | TOPIC_… |
| DescribeTransactions | DESCRIBE transactional id | TRANSACTIONAL_ID_… |
| ListTransactions | DESCRIBE transactional id | left out |
| DescribeAcls, DescribeUserScramCredentials | DESCRIBE cluster | CLUSTER_… |
| DescribeLogDirs | DESCRIBE cluster | CLUSTER_… |
| CreateAcls, DeleteAcls, AlterUserScramCredentials | ALTER cluster | CLUSTER_… |
| ElectLeaders, AlterReplicaLogDirs | ALTER cluster | CLUSTER_… |
| DescribeClientQuotas | DESCRIBE_CONFIGS cluster | CLUSTER_… |
| AlterClientQuotas | ALTER_CONFIGS cluster | CLUSTER_… |
| ApiVersions, SaslHandshake, SaslAuthenticate | none | |

(``TOPIC_…`` is TOPIC_AUTHORIZATION_FAILED, and so on.) Without an authorizer everything is allowed.
A decision costs a dictionary lookup; see ``security/authorizer.py``.
"""

from __future__ import annotations

from penstock_broker.api.context import Exchange, Services
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.security.acls import CLUSTER_NAME, SUPPORTED, Operation, ResourceType
from penstock_broker.wire.messages.describe_configs import RESOURCE_TOPIC

__all__ = ["CLUSTER_NAME", "Operation", "ResourceType"]

RESOURCE_GROUP = 32

REFUSALS = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
NOT_ASKED = -(2**31)
"""The value of ``…_authorized_operations`` for clients that did not ask."""


def allowed(
    services: Services,
    exchange: Exchange,
    operation: Operation,
    kind: ResourceType,
    name: str,
    *,
    quiet: bool = False,
) -> bool:
    """Whether the client may do this. ``quiet``: a no is no denial (it narrows a list)."""
    authorizer = services.authorizer
    if authorizer is None:
        return True
    session = exchange.session
    if authorizer.allows(session.principal, session.host, operation, kind, name):
        return True
    if not quiet:
        services.metrics.authorizations_denied.labels(operation.name, kind.name).inc()
    return False


def require(
    services: Services, exchange: Exchange, operation: Operation, kind: ResourceType, name: str
) -> None:
    """KafkaError with the code of this kind of resource, unless the client may do this."""
    if services.authorizer is not None and not allowed(services, exchange, operation, kind, name):
        raise KafkaError(REFUSALS[kind])


def require_cluster(services: Services, exchange: Exchange, operation: Operation) -> None:
    """CLUSTER_AUTHORIZATION_FAILED, unless the client may do this to the cluster."""
    require(services, exchange, operation, ResourceType.CLUSTER, CLUSTER_NAME)


def may_write_idempotently(services: Services, exchange: Exchange) -> bool:
    """Whether the client may have a producer id: with IDEMPOTENT_WRITE, or because there is a
    topic that it may write to (KIP-679)."""
    authorizer = services.authorizer
    if authorizer is None:
        return True
    session = exchange.session
    return allowed(
        services, exchange, Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME
    ) or authorizer.allows_any(session.principal, session.host, Operation.WRITE, ResourceType.TOPIC)


def may_replicate(services: Services, exchange: Exchange) -> bool:
    """Whether the client may do what brokers do for each other."""
    return allowed(
        services, exchange, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME, quiet=True
    )


def require_configs(
    services: Services, exchange: Exchange, operation: Operation, resource_type: int, name: str
) -> None:
    """As :func:`require`, for a resource of DescribeConfigs and similar APIs: a topic, a group, or
    the cluster for a broker and its loggers. Other types are refused by the handlers."""
    if resource_type == RESOURCE_TOPIC:
        require(services, exchange, operation, ResourceType.TOPIC, name)
    elif resource_type == RESOURCE_GROUP:
        require(services, exchange, operation, ResourceType.GROUP, name)
    else:
        require_cluster(services, exchange, operation)


def may_create_topic(services: Services, exchange: Exchange, name: str) -> bool:
    """Whether the client may create any topic, or this one."""
    return allowed(
        services, exchange, Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, quiet=True
    ) or allowed(services, exchange, Operation.CREATE, ResourceType.TOPIC, name)


def operations(services: Services, exchange: Exchange, kind: ResourceType, name: str) -> int:
    """The bits of ``…_authorized_operations``: all that there are, without an authorizer."""
    authorizer = services.authorizer
    if authorizer is None:
        return sum(1 << operation for operation in SUPPORTED[kind])
    session = exchange.session
    return authorizer.operations(session.principal, session.host, kind, name)


def cluster_operations(services: Services, exchange: Exchange) -> int:
    """The bits for the cluster; 0 for those who may not describe it."""
    if not allowed(
        services, exchange, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME, quiet=True
    ):
        return 0
    return operations(services, exchange, ResourceType.CLUSTER, CLUSTER_NAME)
