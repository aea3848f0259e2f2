"""Kafka's topic configs: one table of name and kind, so that a slip of the pen fails at load.

Source: Apache Kafka's documentation of topic-level configs (4.x, with those of 3.x).
"""

from __future__ import annotations

import difflib
import re

_NUMBER, _BOOLEAN, _FRACTION, _TEXT = "a whole number", "true or false", "a number", "text"

TOPIC_CONFIGS: dict[str, str | tuple[str, ...]] = {
    "cleanup.policy": ("delete", "compact", "compact,delete", "delete,compact"),
    "compression.type": ("producer", "uncompressed", "zstd", "lz4", "snappy", "gzip"),
    "compression.gzip.level": _NUMBER,
    "compression.lz4.level": _NUMBER,
    "compression.zstd.level": _NUMBER,
    "delete.retention.ms": _NUMBER,
    "file.delete.delay.ms": _NUMBER,
    "flush.messages": _NUMBER,
    "flush.ms": _NUMBER,
    "follower.replication.throttled.replicas": _TEXT,
    "index.interval.bytes": _NUMBER,
    "leader.replication.throttled.replicas": _TEXT,
    "max.compaction.lag.ms": _NUMBER,
    "max.message.bytes": _NUMBER,
    "message.format.version": _TEXT,
    "message.timestamp.after.max.ms": _NUMBER,
    "message.timestamp.before.max.ms": _NUMBER,
    "message.timestamp.difference.max.ms": _NUMBER,
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
    "min.cleanable.dirty.ratio": _FRACTION,
    "min.compaction.lag.ms": _NUMBER,
    "min.insync.replicas": _NUMBER,
    "preallocate": _BOOLEAN,
    "segment.bytes": _NUMBER,
    "segment.index.bytes": _NUMBER,
    "segment.jitter.ms": _NUMBER,
    "segment.ms": _NUMBER,
    "unclean.leader.election.enable": _BOOLEAN,
}
_PATTERNS = {
    _NUMBER: re.compile(r"-?\d+"),
    _FRACTION: re.compile(r"\d+(\.\d+)?"),
    _BOOLEAN: re.compile(r"true|false"),
    _TEXT: re.compile(r".*"),
}


def config_problem(name: str, value: str) -> str | None:
    """What is wrong with this config of a declaration, as a sentence; None when nothing is."""
    if name.startswith(("retention.", "local.retention.")):
        return (
            f"{name} belongs to the broker's own deletion, which Penstock switches off; "
            "declare retention: {keep, max_bytes} instead"
        )
    kind = TOPIC_CONFIGS.get(name)
    if kind is None:
        close = difflib.get_close_matches(name, TOPIC_CONFIGS, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        return f"{name} is not a topic config of Kafka{hint}"
    if isinstance(kind, tuple):
        return None if value in kind else f"{name} is one of {', '.join(kind)}, not {value!r}"
    return None if _PATTERNS[kind].fullmatch(value) else f"{name} is {kind}, not {value!r}"
