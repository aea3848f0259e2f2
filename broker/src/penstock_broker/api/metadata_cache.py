"""Parts of Metadata's answers that are kept encoded until what they describe changes.

A refresh of a thousand partitions by a hundred clients costs joining bytes.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock_broker.cluster.topic import Topic


class MetadataCache:
    """Encoded topics by name and version, with the topic that they were made from."""

    def __init__(self) -> None:
        self._topics: dict[str, dict[int, tuple[Topic, int, bytes]]] = {}
        self._frames: dict[tuple[int, str, int], tuple[bytes, bytes]] = {}

    def topic(
        self, topic: Topic, version: int, operations: int, make: Callable[[], bytes]
    ) -> bytes:
        """One encoded topic. Topics are immutable values: another object is another state.
        ``operations`` are the bits of what the client may do with it."""
        versions = self._topics.setdefault(topic.name, {})
        found = versions.get(version)
        if found is not None and found[0] is topic and found[1] == operations:
            return found[2]
        data = make()
        versions[version] = (topic, operations, data)
        return data

    def invalidate(self, name: str) -> None:
        """The topic is gone, or its leaders have changed."""
        self._topics.pop(name, None)

    def frame(
        self, key: tuple[int, str, int], make: Callable[[], tuple[bytes, bytes]]
    ) -> tuple[bytes, bytes]:
        """What comes before the array of topics and after it, by version, listener and the bits of
        what the client may do with the cluster."""
        found = self._frames.get(key)
        if found is None:
            found = self._frames[key] = make()
        return found
