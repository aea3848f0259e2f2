"""ElectLeaders: let partitions choose their leader again (KIP-183, KIP-460)."""

from penstock_broker.wire.schema import INT8, INT16, INT32, STRING, Struct, array, field

API_KEY = 43
VERSIONS = range(3)
FLEXIBLE_FROM = 2

ELECTION_PREFERRED = 0
ELECTION_UNCLEAN = 1


class ElectLeadersTopicPartitions(Struct):
    topic: str = field(STRING)
    partitions: list[int] = array(INT32)


class ElectLeadersRequest(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    """`topic_partitions` null asks for all of them."""

    election_type: int = field(INT8, since=1, default=ELECTION_PREFERRED)
    topic_partitions: list[ElectLeadersTopicPartitions] | None = array(
        ElectLeadersTopicPartitions, nullable_since=0, default=None
    )
    timeout_ms: int = field(INT32, default=60000)


class ElectLeadersPartitionResult(Struct):
    partition_id: int = field(INT32)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable_since=0, default=None)


class ReplicaElectionResult(Struct):
    topic: str = field(STRING)
    partition_result: list[ElectLeadersPartitionResult] = array(ElectLeadersPartitionResult)


class ElectLeadersResponse(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, since=1, default=0)
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult, default=())
