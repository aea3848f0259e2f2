"""The records of ``__consumer_offsets``, in Kafka's own format, so that Kafka's tools read them.

    key    i16 version 1: group, topic, partition i32          an offset
           i16 version 2: group                                a group
    value  i16 version 3: offset i64, leader_epoch i32, metadata, commit_timestamp_ms i64
           i16 version 3: protocol_type, generation i32, protocol?, leader?, state_timestamp_ms i64,
                          members [member_id, group_instance_id?, client_id, client_host,
                          rebalance_timeout_ms i32, session_timeout_ms i32, subscription bytes,
                          assignment bytes]

Strings carry an i16 length (-1 for null where marked ``?``), bytes and arrays an i32 one. A null
value is a tombstone. Written: offset values v3 (v1, with the time of expiry behind the other one
and without the epoch, where an old client asked for a retention time of its own), group values v3.
Also read: offset values v0, v2 and v4, group values v0-v2 (KIP-211, KIP-320, KIP-345), as
Apache Kafka wrote or writes them.
Source: ``OffsetCommitKey/Value.json`` and ``GroupMetadataKey/Value.json`` of Kafka 3.9 and 4.3.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from penstock_broker.groups.members import Member, StoredGroup

Buffer = bytes | memoryview


@dataclass(frozen=True, slots=True)
class OffsetKey:
    """Whose offset: a group's, of one partition."""

    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class GroupKey:
    """Which group's generation."""

    group: str


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A committed offset; ``leader_epoch`` and ``expire_timestamp_ms`` -1 when the client did not
    say. The latter is a client's own retention time (OffsetCommit v2-v4)."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1


class RecordError(ValueError):
    """A record of the internal topic that is not in a known format."""


class _Reader:
    """Reads the fields of one key or value in order."""

    def __init__(self, data: Buffer) -> None:
        self._data = memoryview(data)
        self._position = 0

    def take(self, layout: str) -> int:
        (value,) = struct.unpack_from(layout, self._data, self._position)
        self._position += struct.calcsize(layout)
        return int(value)

    def chunk(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise RecordError(f"{size} bytes asked for, {len(self._data) - self._position} there")
        data = bytes(self._data[self._position : end])
        self._position = end
        return data

    def string_or_none(self) -> str | None:
        size = self.take(">h")
        return None if size == -1 else self.chunk(size).decode()

    def string(self) -> str:
        return self.string_or_none() or ""

    def compact_string(self) -> str:
        size = self.take(">B")
        if size & 0x80:
            size = size & 0x7F | self.take(">B") << 7  # metadata is bounded far below 2^14
        return self.chunk(size - 1).decode()

    def binary(self) -> bytes:
        return self.chunk(self.take(">i"))


def _string(value: str | None) -> bytes:
    if value is None:
        return b"\xff\xff"
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def _binary(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def encode_offset_key(key: OffsetKey) -> bytes:
    return b"\0\1" + _string(key.group) + _string(key.topic) + struct.pack(">i", key.partition)


def encode_group_key(key: GroupKey) -> bytes:
    return b"\0\2" + _string(key.group)


def decode_key(data: Buffer) -> OffsetKey | GroupKey | None:
    """The key of a record; None for a version from the future, which is skipped as Kafka does."""
    try:
        reader = _Reader(data)
        version = reader.take(">h")
        if version in {0, 1}:
            return OffsetKey(reader.string(), reader.string(), reader.take(">i"))
        return GroupKey(reader.string()) if version == 2 else None
    except (struct.error, UnicodeDecodeError) as cause:
        raise RecordError(f"key: {cause}") from cause


def encode_offset_value(value: CommittedOffset) -> bytes:
    if value.expire_timestamp_ms >= 0:
        return (
            struct.pack(">hq", 1, value.offset)
            + _string(value.metadata)
            + struct.pack(">qq", value.commit_timestamp_ms, value.expire_timestamp_ms)
        )
    return (
        struct.pack(">hqi", 3, value.offset, value.leader_epoch)
        + _string(value.metadata)
        + struct.pack(">q", value.commit_timestamp_ms)
    )


def decode_offset_value(data: Buffer) -> CommittedOffset:
    try:
        reader = _Reader(data)
        version = reader.take(">h")
        if not 0 <= version <= 4:
            raise RecordError(f"offset value version {version}")
        offset = reader.take(">q")
        leader_epoch = reader.take(">i") if version >= 3 else -1
        metadata = reader.compact_string() if version >= 4 else reader.string()
        committed_ms = reader.take(">q")
        expire_ms = reader.take(">q") if version == 1 else -1
        return CommittedOffset(offset, leader_epoch, metadata, committed_ms, expire_ms)
    except (struct.error, UnicodeDecodeError) as cause:
        raise RecordError(f"offset value: {cause}") from cause


def encode_group_value(group: StoredGroup) -> bytes:
    parts = [
        struct.pack(">h", 3),
        _string(group.protocol_type or ""),
        struct.pack(">i", group.generation_id),
        _string(group.protocol_name),
        _string(group.leader),
        struct.pack(">qi", group.state_timestamp_ms, len(group.members)),
    ]
    for member in group.members:
        parts += [
            _string(member.member_id),
            _string(member.group_instance_id),
            _string(member.client_id),
            _string(member.client_host),
            struct.pack(">ii", member.rebalance_timeout_ms, member.session_timeout_ms),
            _binary(member.metadata(group.protocol_name or "")),
            _binary(member.assignment),
        ]
    return b"".join(parts)


def decode_group_value(data: Buffer) -> StoredGroup:
    """The group as stored; each member knows only the protocol of that generation."""
    try:
        return _group_value(_Reader(data))
    except (struct.error, UnicodeDecodeError) as cause:
        raise RecordError(f"group value: {cause}") from cause


def _group_value(reader: _Reader) -> StoredGroup:
    version = reader.take(">h")
    if not 0 <= version <= 3:
        raise RecordError(f"group value version {version}")
    group = StoredGroup(
        reader.string() or None,
        reader.take(">i"),
        reader.string_or_none(),
        reader.string_or_none(),
        reader.take(">q") if version >= 2 else -1,
    )
    for _ in range(reader.take(">i")):
        group.members.append(_member(reader, version, group))
    return group


def _member(reader: _Reader, version: int, group: StoredGroup) -> Member:
    member_id = reader.string()
    instance = reader.string_or_none() if version >= 3 else None
    client_id, client_host = reader.string(), reader.string()
    rebalance_timeout_ms = reader.take(">i") if version >= 1 else -1
    session_timeout_ms = reader.take(">i")
    subscription, assignment = reader.binary(), reader.binary()
    return Member(
        member_id,
        instance,
        client_id,
        client_host,
        session_timeout_ms,
        rebalance_timeout_ms if rebalance_timeout_ms >= 0 else session_timeout_ms,
        group.protocol_type or "",
        ((group.protocol_name or "", subscription),),
        assignment,
    )
