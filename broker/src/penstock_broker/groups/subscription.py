"""What consumers put into their JoinGroup metadata: which topics they want.

    version i16, topics [string], user_data bytes, ...        (ConsumerProtocolSubscription.json)

The broker only looks into it for OffsetDelete, as Kafka does; to everything else it is opaque.
"""

from __future__ import annotations

import struct


def subscribed_topics(metadata: bytes) -> set[str] | None:
    """The topics named in a consumer's subscription; None when it is not one."""
    try:
        _version, count = struct.unpack_from(">hi", metadata)
        position = 6
        topics: set[str] = set()
        if not 0 <= count <= len(metadata):
            return None
        for _ in range(count):
            (size,) = struct.unpack_from(">h", metadata, position)
            end = position + 2 + size
            if size < 0 or end > len(metadata):
                return None
            topics.add(metadata[position + 2 : end].decode())
            position = end
    except (struct.error, UnicodeDecodeError):
        return None
    return topics
