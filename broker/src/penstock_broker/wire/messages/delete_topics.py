"""DeleteTopics: by name, from version 6 also by id."""

import uuid

from penstock_broker.wire.schema import INT16, INT32, STRING, UUID, UUID_ZERO, Struct, array, field

API_KEY = 20
VERSIONS = range(1, 7)
FLEXIBLE_FROM = 4


class DeleteTopicState(Struct):
    name: str | None = field(STRING, since=6, nullable_since=6, default=None)
    topic_id: uuid.UUID = field(UUID, since=6, default=UUID_ZERO)


class DeleteTopicsRequest(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    topics: list[DeleteTopicState] = array(DeleteTopicState, since=6, default=())
    topic_names: list[str] = array(STRING, until=5, default=())
    timeout_ms: int = field(INT32)


class DeletableTopicResult(Struct):
    name: str | None = field(STRING, nullable_since=6)
    topic_id: uuid.UUID = field(UUID, since=6, default=UUID_ZERO)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, since=5, nullable_since=5, default=None)


class DeleteTopicsResponse(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    throttle_time_ms: int = field(INT32, since=1, default=0)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
