"""The records of __consumer_offsets, against bytes that Apache Kafka 4.3.1 wrote."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.cluster.java_hash import java_hash
from penstock_broker.groups.members import Member, StoredGroup
from penstock_broker.groups.offset_records import (
    CommittedOffset,
    GroupKey,
    OffsetKey,
    RecordError,
    decode_group_value,
    decode_key,
    decode_offset_value,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
)
from penstock_broker.groups.subscription import subscribed_topics

# Group "srv-cap-größe" of one static member, one commit with metadata "note".
GROUP_KEY = bytes.fromhex("0002000f7372762d6361702d6772c3b6c39f65")
EMPTY_GROUP = bytes.fromhex("0003000000000000ffffffff000001a1fbe1802100000000")
GROUP = bytes.fromhex(
    "00030008636f6e73756d657200000001000572616e6765002b696e73742d312d65383830356463632d353730652d"
    "346166312d626439342d623335333834636264313865000001a1fbe1805600000001002b696e73742d312d653838"
    "30356463632d353730652d346166312d626439342d6233353338346362643138650006696e73742d310007636170"
    "74757265000a2f3132372e302e302e31000493e00000afc80000001d00030000000100077372762d636170000000"
    "0000000000ffffffff00000000001f00000000000100077372762d63617000000002000000000000000100000000"
)
OFFSET_KEY = bytes.fromhex("0001000f7372762d6361702d6772c3b6c39f6500077372762d63617000000000")
OFFSET_V4 = bytes.fromhex(
    "00040000000000000001ffffffff066e6f746500000001a1fbe182ce010010a9b732d6a492474bb3ba53bc91f5b48c"
)


def test_keys_are_kafkas() -> None:
    assert decode_key(GROUP_KEY) == GroupKey("srv-cap-größe")
    assert encode_group_key(GroupKey("srv-cap-größe")) == GROUP_KEY
    offset = OffsetKey("srv-cap-größe", "srv-cap", 0)
    assert decode_key(OFFSET_KEY) == offset
    assert encode_offset_key(offset) == OFFSET_KEY
    assert decode_key(b"\0\x09future") is None


def test_groups_are_kafkas() -> None:
    group = decode_group_value(GROUP)
    (member,) = group.members
    assert (group.protocol_type, group.protocol_name, group.generation_id) == (
        "consumer",
        "range",
        1,
    )
    assert group.leader == member.member_id
    assert member.group_instance_id == "inst-1"
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (45_000, 300_000)
    assert subscribed_topics(member.metadata("range")) == {"srv-cap"}
    assert encode_group_value(group) == GROUP
    assert encode_group_value(decode_group_value(EMPTY_GROUP)) == EMPTY_GROUP


def test_offsets_are_kafkas() -> None:
    # confluent-kafka sends the end of its C string along.
    assert decode_offset_value(OFFSET_V4) == CommittedOffset(1, -1, "note\0", 1_795_227_222_734)


def test_the_partition_of_a_group_is_kafkas() -> None:
    """Kafka put the records above into partition 16 of 50."""
    assert abs(java_hash("srv-cap-größe")) % 50 == 16
    assert java_hash("polygenelubricants") == -(2**31)
    assert java_hash("") == 0
    assert java_hash("😀") == 1772899


@given(
    st.builds(
        CommittedOffset,
        st.integers(-1, 2**63 - 1),
        st.integers(-1, 2**31 - 1),
        st.text(max_size=50),
        st.integers(0, 2**63 - 1),
    )
)
def test_offsets_round_trip(offset: CommittedOffset) -> None:
    assert decode_offset_value(encode_offset_value(offset)) == offset


@given(st.binary(max_size=60), st.integers(0, 5))
def test_garbage_is_a_record_error_and_nothing_else(data: bytes, version: int) -> None:
    for decode in (decode_key, decode_offset_value, decode_group_value):
        try:
            decode(version.to_bytes(2, "big") + data)
        except RecordError:
            continue


def test_a_group_without_members_has_no_protocol_and_leader() -> None:
    member = Member("m", None, "c", "/h", 10_000, 20_000, "consumer", (("range", b"s"),), b"a")
    group = StoredGroup("consumer", 4, "range", "m", 17, [member])
    assert decode_group_value(encode_group_value(group)) == group
    empty = StoredGroup("consumer", 5, None, None, 18)
    assert decode_group_value(encode_group_value(empty)) == empty


@pytest.mark.parametrize("metadata", [b"", b"\0\1", b"\0\0\xff\xff\xff\xff", b"\0\0\0\0\0\1\0\5ab"])
def test_subscriptions_that_are_none(metadata: bytes) -> None:
    assert subscribed_topics(metadata) is None
