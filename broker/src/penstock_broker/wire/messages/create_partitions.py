"""CreatePartitions: let a topic grow."""

from penstock_broker.wire.schema import BOOL, INT16, INT32, STRING, Struct, array, field

API_KEY = 37
VERSIONS = range(4)
FLEXIBLE_FROM = 2


class CreatePartitionsAssignment(Struct):
    broker_ids: list[int] = array(INT32)


class CreatePartitionsTopic(Struct):
    """`count` is the new total."""

    name: str = field(STRING)
    count: int = field(INT32)
    assignments: list[CreatePartitionsAssignment] | None = array(
        CreatePartitionsAssignment, nullable_since=0, default=None
    )


class CreatePartitionsRequest(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = field(INT32)
    validate_only: bool = field(BOOL, default=False)


class CreatePartitionsTopicResult(Struct):
    name: str = field(STRING)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable_since=0, default=None)


class CreatePartitionsResponse(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    throttle_time_ms: int = field(INT32, default=0)
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
