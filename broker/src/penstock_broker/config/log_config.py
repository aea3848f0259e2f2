"""The settings of a topic."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock_broker.config.table import (
    INT64_MAX,
    ConfigError,
    ConfigType,
    Setting,
    at_least,
    attributes_of,
    between,
    between_or,
    each_of,
    one_of,
    rows_of,
    setting,
    unknown_name,
)

_THROTTLED = re.compile(r"\*|\d+:\d+")


def _throttled_replicas(pairs: tuple[str, ...]) -> str | None:
    if all(_THROTTLED.fullmatch(pair) for pair in pairs):
        return None
    return (
        "must be the literal '*' or a list of replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    )


@dataclass(frozen=True, slots=True)
class LogConfig:
    """What a topic can override. Immutable: a live change hands the log a new one."""

    cleanup_policy: tuple[str, ...] = setting(
        "cleanup.policy",
        ConfigType.LIST,
        ("delete",),
        "How old segments are treated: delete (by retention.ms and retention.bytes), compact (the "
        "last record of each key stays), both, or nothing (KIP-1161).",
        check=each_of("compact", "delete", may_be_empty=True),
        broker="log.cleanup.policy",
    )
    compression_type: str = setting(
        "compression.type",
        ConfigType.STRING,
        "producer",
        "producer keeps batches as they were sent; with another value those that came otherwise "
        "are recompressed.",
        check=one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        broker="compression.type",
    )
    compression_gzip_level: int = setting(
        "compression.gzip.level",
        ConfigType.INT,
        -1,
        "The gzip level where compression.type is gzip; -1: the library's default.",
        check=between_or(1, 9, -1),
        broker="compression.gzip.level",
    )
    compression_lz4_level: int = setting(
        "compression.lz4.level",
        ConfigType.INT,
        9,
        "Accepted for compatibility: the broker's lz4 has one level only.",
        check=between(1, 17),
        broker="compression.lz4.level",
    )
    compression_zstd_level: int = setting(
        "compression.zstd.level",
        ConfigType.INT,
        3,
        "The zstd level where compression.type is zstd.",
        check=between(-131_072, 22),
        broker="compression.zstd.level",
    )
    delete_retention_ms: int = setting(
        "delete.retention.ms",
        ConfigType.LONG,
        86_400_000,
        "How long a compacted topic keeps delete markers, from the first compaction that saw them.",
        check=at_least(0),
        broker="log.cleaner.delete.retention.ms",
    )
    file_delete_delay_ms: int = setting(
        "file.delete.delay.ms",
        ConfigType.LONG,
        60_000,
        "How long a deleted segment or topic stays on the disk under another name.",
        check=at_least(0),
        broker="log.segment.delete.delay.ms",
    )
    flush_messages: int = setting(
        "flush.messages",
        ConfigType.LONG,
        INT64_MAX,
        "Sync to the disk after this many records. 1: before they are acknowledged or seen, one "
        "sync for all that wait; more: in the background.",
        check=at_least(1),
        broker="log.flush.interval.messages",
    )
    flush_ms: int = setting(
        "flush.ms",
        ConfigType.LONG,
        INT64_MAX,
        "Force an fsync once an appended record has waited this long for one.",
        check=at_least(0),
        broker="log.flush.interval.ms",
    )
    follower_replication_throttled_replicas: tuple[str, ...] = setting(
        "follower.replication.throttled.replicas",
        ConfigType.LIST,
        (),
        "Accepted for compatibility: one broker has no followers.",
        check=_throttled_replicas,
    )
    index_interval_bytes: int = setting(
        "index.interval.bytes",
        ConfigType.INT,
        4096,
        "Bytes of log between two entries of the offset index.",
        check=at_least(0),
        broker="log.index.interval.bytes",
    )
    leader_replication_throttled_replicas: tuple[str, ...] = setting(
        "leader.replication.throttled.replicas",
        ConfigType.LIST,
        (),
        "Accepted for compatibility: one broker has no followers.",
        check=_throttled_replicas,
    )
    local_retention_bytes: int = setting(
        "local.retention.bytes",
        ConfigType.LONG,
        -2,
        "Accepted for compatibility: nothing is in tiered storage, retention.bytes holds.",
        check=at_least(-2),
        broker="log.local.retention.bytes",
    )
    local_retention_ms: int = setting(
        "local.retention.ms",
        ConfigType.LONG,
        -2,
        "Accepted for compatibility: nothing is in tiered storage, retention.ms holds.",
        check=at_least(-2),
        broker="log.local.retention.ms",
    )
    max_compaction_lag_ms: int = setting(
        "max.compaction.lag.ms",
        ConfigType.LONG,
        INT64_MAX,
        "The longest a record may stay uncompacted.",
        check=at_least(1),
        broker="log.cleaner.max.compaction.lag.ms",
    )
    max_message_bytes: int = setting(
        "max.message.bytes",
        ConfigType.INT,
        1_048_588,
        "The largest record batch accepted, in bytes, after compression.",
        check=at_least(0),
        broker="message.max.bytes",
    )
    message_timestamp_after_max_ms: int = setting(
        "message.timestamp.after.max.ms",
        ConfigType.LONG,
        3_600_000,
        "How far a record's timestamp may lie ahead of the broker's clock (CreateTime only).",
        check=at_least(0),
        broker="log.message.timestamp.after.max.ms",
    )
    message_timestamp_before_max_ms: int = setting(
        "message.timestamp.before.max.ms",
        ConfigType.LONG,
        INT64_MAX,
        "How far a record's timestamp may lie behind the broker's clock (CreateTime only).",
        check=at_least(0),
        broker="log.message.timestamp.before.max.ms",
    )
    message_timestamp_type: str = setting(
        "message.timestamp.type",
        ConfigType.STRING,
        "CreateTime",
        "Whose time a record carries: the producer's, or the broker's at the append.",
        check=one_of("CreateTime", "LogAppendTime"),
        broker="log.message.timestamp.type",
    )
    min_cleanable_dirty_ratio: float = setting(
        "min.cleanable.dirty.ratio",
        ConfigType.DOUBLE,
        0.5,
        "The share of uncompacted bytes that makes a log worth compacting.",
        check=between(0, 1),
        broker="log.cleaner.min.cleanable.ratio",
    )
    min_compaction_lag_ms: int = setting(
        "min.compaction.lag.ms",
        ConfigType.LONG,
        0,
        "The least time a record stays uncompacted.",
        check=at_least(0),
        broker="log.cleaner.min.compaction.lag.ms",
    )
    min_insync_replicas: int = setting(
        "min.insync.replicas",
        ConfigType.INT,
        1,
        "In-sync replicas (with the leader) that a write with acks=all needs.",
        check=at_least(1),
        broker="min.insync.replicas",
    )
    preallocate: bool = setting(
        "preallocate",
        ConfigType.BOOLEAN,
        False,
        "Accepted for compatibility; segments grow as they are written.",
        broker="log.preallocate",
    )
    remote_log_copy_disable: bool = setting(
        "remote.log.copy.disable",
        ConfigType.BOOLEAN,
        False,
        "Accepted for compatibility: there is no tiered storage.",
    )
    remote_log_delete_on_disable: bool = setting(
        "remote.log.delete.on.disable",
        ConfigType.BOOLEAN,
        False,
        "Accepted for compatibility: there is no tiered storage.",
    )
    remote_storage_enable: bool = setting(
        "remote.storage.enable",
        ConfigType.BOOLEAN,
        False,
        "Only false: there is no tiered storage.",
    )
    retention_bytes: int = setting(
        "retention.bytes",
        ConfigType.LONG,
        -1,
        "The size that a partition keeps at least when old segments are deleted; -1: no limit.",
        broker="log.retention.bytes",
    )
    retention_ms: int = setting(
        "retention.ms",
        ConfigType.LONG,
        604_800_000,
        "The age of its newest record at which a segment is deleted; -1: never.",
        check=at_least(-1),
        broker="log.retention.ms",
        aliases=(("log.retention.minutes", 60_000), ("log.retention.hours", 3_600_000)),
    )
    segment_bytes: int = setting(
        "segment.bytes",
        ConfigType.INT,
        1 << 30,
        "The size at which a segment is closed and the next one begun.",
        check=at_least(14),
        broker="log.segment.bytes",
    )
    segment_index_bytes: int = setting(
        "segment.index.bytes",
        ConfigType.INT,
        10 << 20,
        "The size at which a segment's offset index is full, which closes the segment.",
        check=at_least(12),
        broker="log.index.size.max.bytes",
    )
    segment_jitter_ms: int = setting(
        "segment.jitter.ms",
        ConfigType.LONG,
        0,
        "The most that is taken off segment.ms at random, so that topics do not roll together.",
        check=at_least(0),
        broker="log.roll.jitter.ms",
        aliases=(("log.roll.jitter.hours", 3_600_000),),
    )
    segment_ms: int = setting(
        "segment.ms",
        ConfigType.LONG,
        604_800_000,
        "The age at which a segment is closed even if it is not full.",
        check=at_least(1),
        broker="log.roll.ms",
        aliases=(("log.roll.hours", 3_600_000),),
    )
    unclean_leader_election_enable: bool = setting(
        "unclean.leader.election.enable",
        ConfigType.BOOLEAN,
        False,
        "Whether a replica outside the in-sync set may lead, at the price of records.",
        broker="unclean.leader.election.enable",
    )

    def with_overrides(self, overrides: Mapping[str, str]) -> LogConfig:
        """These values with a topic's overrides on top; :class:`ConfigError` for a bad one."""
        changes: dict[str, Any] = {}
        for name, text in overrides.items():
            row = topic_setting(name)
            changes[attribute(row)] = row.parse(text)
        return replace(self, **changes)

    def check_overrides(self, overrides: Mapping[str, str]) -> None:
        """:class:`ConfigError`, in Kafka's words, unless a topic may be given these overrides: each
        valid, and with the others. What a topic has already is taken as it is when the defaults
        under it change."""
        changed = self.with_overrides(overrides)
        least, most = changed.min_compaction_lag_ms, changed.max_compaction_lag_ms
        if least > most:
            raise ConfigError(
                f"conflict topic config setting min.compaction.lag.ms ({least}) > "
                f"max.compaction.lag.ms ({most})"
            )
        if changed.remote_storage_enable:
            raise ConfigError(
                "Tiered Storage functionality is disabled in the broker. "
                "Topic cannot be configured with remote log storage."
            )

    @property
    def longest_segment_ms(self) -> int:
        """How long a segment may grow: what is to be compacted has to be closed in time."""
        if "compact" in self.cleanup_policy:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms

    @property
    def stamps_append_time(self) -> bool:
        """Whether the broker's time replaces the producers'."""
        return self.message_timestamp_type == "LogAppendTime"


LOG_SETTINGS: dict[str, Setting] = rows_of(LogConfig)
"""Topic settings by name."""
_ATTRIBUTES = attributes_of(LogConfig)


def attribute(row: Setting) -> str:
    """The name of the field of LogConfig that holds this setting."""
    return _ATTRIBUTES[row.name]


def topic_setting(name: str) -> Setting:
    """The row of a topic setting; :class:`ConfigError` for an unknown name."""
    row = LOG_SETTINGS.get(name)
    if row is None:
        text = unknown_name(name, LOG_SETTINGS)
        raise ConfigError(text.replace("Unknown configuration", "Unknown topic config name:", 1))
    return row
