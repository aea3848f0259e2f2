"""The settings of a broker, with the defaults that it gives to topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock_broker.config.log_config import LOG_SETTINGS, LogConfig, attribute
from penstock_broker.config.security_settings import LISTENER_SETTINGS
from penstock_broker.config.table import (
    INT32_MAX,
    ConfigEntry,
    ConfigError,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    Setting,
    at_least,
    attributes_of,
    http_address_problem,
    one_of,
    rows_of,
    setting,
    unknown_name,
)
from penstock_broker.config.transaction_settings import TransactionSettings


@dataclass(frozen=True, slots=True)
class BrokerConfig(TransactionSettings):
    """The broker's own settings, and the defaults that it gives to topics (:attr:`log`)."""

    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable",
        ConfigType.BOOLEAN,
        True,
        "Create a topic when a client asks for it.",
    )
    broker_id: int = setting("broker.id", ConfigType.INT, 0, "This broker's id.", check=at_least(0))
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms",
        ConfigType.LONG,
        600_000,
        "Close a connection that is idle this long.",
    )
    default_replication_factor: int = setting(
        "default.replication.factor",
        ConfigType.INT,
        1,
        "Replicas of a created topic.",
        check=at_least(1),
    )
    delete_topic_enable: bool = setting(
        "delete.topic.enable", ConfigType.BOOLEAN, True, "Whether topics may be deleted."
    )
    fetch_max_bytes: int = setting(
        "fetch.max.bytes",
        ConfigType.INT,
        55 << 20,
        "The most bytes that one Fetch answer carries, whatever the client asks for.",
        check=at_least(1024),
    )
    group_initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms",
        ConfigType.INT,
        3_000,
        "How long the first join of an empty group waits for others.",
        check=at_least(0),
    )
    group_max_session_timeout_ms: int = setting(
        "group.max.session.timeout.ms",
        ConfigType.INT,
        1_800_000,
        "The longest session timeout allowed.",
    )
    group_max_size: int = setting(
        "group.max.size",
        ConfigType.INT,
        INT32_MAX,
        "The most members of a group.",
        check=at_least(1),
    )
    group_min_session_timeout_ms: int = setting(
        "group.min.session.timeout.ms",
        ConfigType.INT,
        6_000,
        "The shortest session timeout allowed.",
    )
    log_cleaner_backoff_ms: int = setting(
        "log.cleaner.backoff.ms",
        ConfigType.LONG,
        15_000,
        "How long the log cleaner sleeps when there is nothing to compact.",
        check=at_least(0),
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        "log.cleaner.dedupe.buffer.size",
        ConfigType.LONG,
        128 << 20,
        "Memory for the keys of one compaction, about 200 bytes a key; what does not fit is left "
        "to the next pass.",
        check=at_least(1),
    )
    log_cleaner_enable: bool = setting(
        "log.cleaner.enable",
        ConfigType.BOOLEAN,
        True,
        "Whether topics with cleanup.policy=compact are compacted; __consumer_offsets grows "
        "without end if they are not.",
    )
    log_retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms",
        ConfigType.LONG,
        300_000,
        "How often logs are checked for segments to delete (retention.ms, retention.bytes).",
        check=at_least(1),
    )
    log_flush_offset_checkpoint_interval_ms: int = setting(
        "log.flush.offset.checkpoint.interval.ms",
        ConfigType.INT,
        60_000,
        "How often the checkpoint of recovery points is written.",
        check=at_least(0),
    )
    log_flush_scheduler_interval_ms: int = setting(
        "log.flush.scheduler.interval.ms",
        ConfigType.LONG,
        1_000,
        "How often logs are checked for flush.ms.",
        check=at_least(1),
    )
    max_fetch_session_slots: int = setting(
        "max.incremental.fetch.session.cache.slots",
        ConfigType.INT,
        1_000,
        "The most fetch sessions kept.",
        check=at_least(0),
    )
    num_partitions: int = setting(
        "num.partitions", ConfigType.INT, 1, "Partitions of a created topic.", check=at_least(1)
    )
    offset_metadata_max_bytes: int = setting(
        "offset.metadata.max.bytes",
        ConfigType.INT,
        4_096,
        "The most metadata beside a committed offset.",
    )
    offsets_retention_minutes: int = setting(
        "offsets.retention.minutes",
        ConfigType.INT,
        10_080,
        "How long the offsets of an empty group are kept.",
        check=at_least(1),
    )
    offsets_retention_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms",
        ConfigType.LONG,
        600_000,
        "How often offsets are checked for expiry.",
        check=at_least(1),
    )
    offsets_topic_num_partitions: int = setting(
        "offsets.topic.num.partitions",
        ConfigType.INT,
        50,
        "Partitions of __consumer_offsets; fixed once the topic exists.",
        check=at_least(1),
    )
    offsets_topic_segment_bytes: int = setting(
        "offsets.topic.segment.bytes",
        ConfigType.INT,
        8 << 20,
        "segment.bytes of __consumer_offsets (Kafka: 100 MiB): what a start has to read.",
        check=at_least(1),
    )
    penstock_http_listener: str = setting(
        "penstock.http.listener",
        ConfigType.STRING,
        "",
        "host:port of /metrics, /health/live and /health/ready; port 0 takes a free one, "
        "empty is none.",
        check=http_address_problem,
    )
    penstock_log_format: str = setting(
        "penstock.log.format",
        ConfigType.STRING,
        "text",
        "What the broker writes on standard error: text for people, json for machines.",
        check=one_of("text", "json"),
    )
    penstock_log_level: str = setting(
        "penstock.log.level",
        ConfigType.STRING,
        "INFO",
        "The least severity that is written.",
        check=one_of("DEBUG", "INFO", "WARNING", "ERROR"),
    )
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms",
        ConfigType.INT,
        86_400_000,
        "How long the sequence state of an inactive idempotent producer is kept.",
        check=at_least(1),
    )
    socket_receive_buffer_bytes: int = setting(
        "socket.receive.buffer.bytes",
        ConfigType.INT,
        102_400,
        "SO_RCVBUF; -1 leaves the system's.",
        check=at_least(-1),
    )
    socket_request_max_bytes: int = setting(
        "socket.request.max.bytes",
        ConfigType.INT,
        100 << 20,
        "The largest request; a larger one closes the connection before it is read.",
        check=at_least(1),
    )
    socket_send_buffer_bytes: int = setting(
        "socket.send.buffer.bytes",
        ConfigType.INT,
        102_400,
        "SO_SNDBUF; -1 leaves the system's.",
        check=at_least(-1),
    )
    log: LogConfig = field(default_factory=LogConfig)
    """What a topic has where it overrides nothing."""
    given: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The properties that were set, as text: secrets, too."""
    dynamic: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What was set for this broker while it ran (KIP-226)."""
    dynamic_default: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The same for all brokers; :attr:`dynamic` comes before it."""

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> BrokerConfig:
        """A configuration from properties; :class:`ConfigError` for an unknown name or bad value.

        ``log.retention.hours`` and similar settings count where the finer unit is not given.
        """
        changes: dict[str, Any] = {}
        defaults: dict[str, Any] = {}
        for name, text in properties.items():
            if (row := BROKER_SETTINGS.get(name)) is not None:
                changes[_ATTRIBUTES[row.name]] = row.parse(text)
            elif (row := listener_setting(name)) is not None:
                replace(row, name=name).parse(text)
            elif name not in _TOPIC_DEFAULT_NAMES:
                raise ConfigError(unknown_name(name, known_broker_names()))
        for row in LOG_SETTINGS.values():
            source = given_name(row, properties)
            if source is not None:
                name, factor = source
                value: Any = replace(row, name=name).parse(properties[name])
                defaults[attribute(row)] = value * factor if factor != 1 else value
        return cls(log=replace(LogConfig(), **defaults), given=dict(properties), **changes)

    def with_dynamic(
        self, dynamic: Mapping[str, str], dynamic_default: Mapping[str, str]
    ) -> BrokerConfig:
        """These settings as they were given, with those on top that were set while running.

        Names that are not known here are kept and have no effect. :class:`ConfigError`.
        """
        known = known_broker_names()
        on_top = {k: v for k, v in {**dynamic_default, **dynamic}.items() if k in known}
        effective = BrokerConfig.parse({**self.given, **on_top})
        return replace(
            effective,
            given=self.given,
            dynamic=dict(dynamic),
            dynamic_default=dict(dynamic_default),
        )

    def _layers(self, row: Setting, name: str) -> tuple[ConfigSynonym, ...]:
        """Where a setting's value comes from, the one in force first. ``name``: the property."""
        layers = []
        for source, given in (
            (ConfigSource.DYNAMIC_BROKER, self.dynamic),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER, self.dynamic_default),
            (ConfigSource.STATIC_BROKER, self.given),
        ):
            found = given_name(replace(row, broker_name=name), given)
            if found is not None:
                key, factor = found
                value: Any = replace(row, name=key).parse(given[key])
                text = row.show(value * factor if factor != 1 else value)
                layers.append(ConfigSynonym(name, text, source))
        layers.append(ConfigSynonym(name, row.show(row.default), ConfigSource.DEFAULT))
        return tuple(layers)

    def for_listener(self, name: str) -> BrokerConfig:
        """These settings with those of one listener (``listener.name.<name>.…``) in force."""
        prefix = f"{LISTENER_PREFIX}{name.lower()}."
        own: dict[str, Any] = {
            _ATTRIBUTES[row.name]: row.parse(text)
            for given, text in self.given.items()
            if given.startswith(prefix) and (row := listener_setting(given)) is not None
        }
        return replace(self, **own)

    def topic_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """The effective settings of a topic with these overrides."""
        return self.log.with_overrides(overrides)

    def describe_topic(
        self, overrides: Mapping[str, str], names: Iterable[str] | None = None
    ) -> list[ConfigEntry]:
        """DescribeConfigs of a topic: every setting, or the known ones of ``names``."""
        config = self.topic_config(overrides)
        wanted = None if names is None else set(names)
        return [
            self._topic_entry(row, config, overrides)
            for row in LOG_SETTINGS.values()
            if wanted is None or row.name in wanted
        ]

    def _topic_entry(
        self, row: Setting, config: LogConfig, overrides: Mapping[str, str]
    ) -> ConfigEntry:
        value = row.format(getattr(config, attribute(row)))
        synonyms = self._layers(row, row.broker_name or row.name)
        if row.name in overrides:
            synonyms = (ConfigSynonym(row.name, value, ConfigSource.TOPIC), *synonyms)
        return ConfigEntry(row.name, value, synonyms[0].source, row.type, row.doc, False, synonyms)

    def describe_broker(self, names: Iterable[str] | None = None) -> list[ConfigEntry]:
        """DescribeConfigs of the broker: its own settings and the defaults of topics."""
        rows = [
            (row, row.name, getattr(self, _ATTRIBUTES[row.name]))
            for row in BROKER_SETTINGS.values()
        ]
        rows += [
            (row, row.broker_name, getattr(self.log, attribute(row)))
            for row in LOG_SETTINGS.values()
            if row.broker_name is not None
        ]
        wanted = None if names is None else set(names)
        entries = []
        for row, name, value in sorted(rows, key=lambda item: item[1]):
            if wanted is not None and name not in wanted:
                continue
            synonyms = self._layers(row, name)
            read_only = name not in DYNAMIC_NAMES
            entries.append(
                ConfigEntry(
                    name,
                    row.show(value),
                    synonyms[0].source,
                    row.type,
                    row.doc,
                    read_only,
                    synonyms,
                )
            )
        entries += self._strangers(self.dynamic, ConfigSource.DYNAMIC_BROKER, wanted)
        return entries

    def describe_dynamic_default(self, names: Iterable[str] | None = None) -> list[ConfigEntry]:
        """DescribeConfigs of all brokers: only what was set for them while running."""
        wanted = None if names is None else set(names)
        entries = []
        for name in sorted(self.dynamic_default):
            row = dynamic_setting(name)
            if row is not None and (wanted is None or name in wanted):
                text = row.show(row.parse(self.dynamic_default[name]))
                source = ConfigSource.DYNAMIC_DEFAULT_BROKER
                synonyms = (ConfigSynonym(name, text, source),)
                entries.append(ConfigEntry(name, text, source, row.type, row.doc, False, synonyms))
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER
        return entries + self._strangers(self.dynamic_default, source, wanted)

    def _strangers(
        self, given: Mapping[str, str], source: ConfigSource, wanted: set[str] | None
    ) -> list[ConfigEntry]:
        """Settings that this broker does not know: a value may be a secret, so it is not shown."""
        known = known_broker_names()
        return [
            ConfigEntry(name, None, source, ConfigType.PASSWORD, "", False, ())
            for name in sorted(given)
            if name not in known and (wanted is None or name in wanted)
        ]


LISTENER_PREFIX = "listener.name."
BROKER_SETTINGS: dict[str, Setting] = rows_of(BrokerConfig)
"""The broker's own settings by name (the defaults of topics are in LOG_SETTINGS)."""
_ATTRIBUTES = attributes_of(BrokerConfig)
_TOPIC_DEFAULT_NAMES = frozenset(
    name
    for row in LOG_SETTINGS.values()
    if row.broker_name is not None
    for name in (row.broker_name, *(alias for alias, _ in row.aliases))
)


_DYNAMIC_OWN = (
    "max.connection.creation.rate",
    "max.connections",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
    "producer.id.expiration.ms",
)
DYNAMIC_NAMES = frozenset(
    [
        *_DYNAMIC_OWN,
        *(row.broker_name for row in LOG_SETTINGS.values() if row.broker_name is not None),
    ]
)
"""What can be changed while the broker runs."""


def dynamic_setting(name: str) -> Setting | None:
    """The row of a setting that can be changed while the broker runs, under this property."""
    if name in _DYNAMIC_OWN:
        return BROKER_SETTINGS[name]
    for row in LOG_SETTINGS.values():
        if row.broker_name == name:
            return replace(row, name=name)
    return None


def known_broker_names() -> frozenset[str]:
    """Every property that ``--config`` and ``--set`` understand."""
    return _TOPIC_DEFAULT_NAMES | frozenset(BROKER_SETTINGS)


def listener_setting(name: str) -> Setting | None:
    """What ``listener.name.<name>.<setting>`` sets; None for any other name."""
    if not name.startswith(LISTENER_PREFIX):
        return None
    return LISTENER_SETTINGS.get(name.removeprefix(LISTENER_PREFIX).partition(".")[2])


def given_name(row: Setting, given: Mapping[str, str]) -> tuple[str, int] | None:
    """The finest-grained property of ``given`` that sets this topic default, and its factor."""
    for name, factor in ((row.broker_name or row.name, 1), *row.aliases):
        if name in given:
            return name, factor
    return None
