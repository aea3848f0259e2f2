"""Topics of a consumer's subscription; errors and states as clients see them."""

from __future__ import annotations

import struct

import pytest

from penstock_broker.errors import ErrorCode
from penstock_broker.groups.states import GroupState
from penstock_broker.groups.store import commit_error, store_error
from penstock_broker.groups.subscription import subscribed_topics


def subscription(*topics: bytes, count: int | None = None) -> bytes:
    data = struct.pack(">hi", 0, len(topics) if count is None else count)
    return data + b"".join(struct.pack(">h", len(topic)) + topic for topic in topics)


@pytest.mark.parametrize("topics", [[], ["a"], ["orders", "payments"], [""], ["ö" * 100]])
@pytest.mark.parametrize("after", [b"", b"\xff\xff\xff\xff"])
def test_topics_are_read_and_what_follows_is_not(topics: list[str], after: bytes) -> None:
    data = subscription(*(topic.encode() for topic in topics)) + after
    assert subscribed_topics(data) == set(topics)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        subscription(b"a")[:5],
        subscription(b"a")[:-1],
        subscription(b"a", count=2),
        subscription(b"a", count=-1),
        subscription(b"a", count=-2),
        subscription(b"a", count=2**31 - 1),
        struct.pack(">hih", 0, 1, -1) + b"a",
        struct.pack(">hih", 0, 1, -2),
        subscription(b"\xff"),
    ],
)
def test_what_is_no_subscription_has_no_topics(data: bytes) -> None:
    assert subscribed_topics(data) is None


STORED = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


@pytest.mark.parametrize("code", ErrorCode)
def test_an_error_of_the_internal_topic_is_the_coordinators(code: ErrorCode) -> None:
    """As Kafka's group coordinator maps them."""
    expected = STORED.get(code, code)
    assert store_error(code) is expected
    is_size = expected is ErrorCode.UNKNOWN_SERVER_ERROR and code is not expected
    assert commit_error(code) is (ErrorCode.INVALID_COMMIT_OFFSET_SIZE if is_size else expected)


def test_states_have_kafkas_names() -> None:
    assert [str(state) for state in GroupState] == [
        "Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead",
    ]  # fmt: skip
