"""What logs and producers are called by, from the log up."""

from __future__ import annotations

TopicPartition = tuple[str, int]
"""A topic's name and the index of a partition."""
ProducerAndEpoch = tuple[int, int]
"""A producer id and the epoch of it that is meant."""
