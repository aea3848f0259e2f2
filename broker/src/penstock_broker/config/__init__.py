"""Settings: one table per kind, under Kafka's property names.

:class:`LogConfig` holds what a topic can override (``segment.bytes`` …); :class:`BrokerConfig`
holds the broker's own settings and, in :attr:`BrokerConfig.log`, the defaults for topics, which
are set under Kafka's broker-side names (``log.segment.bytes`` …). The class bodies *are* the
tables: each field names its property, type, default, valid values and meaning, and
``describe_topic`` / ``describe_broker`` answer DescribeConfigs from them, with sources.

A bad value raises :class:`ConfigError`, whose text is Kafka's; the api layer answers
INVALID_CONFIG with it.
"""

from penstock_broker.config.broker_config import BROKER_SETTINGS, BrokerConfig, known_broker_names
from penstock_broker.config.listeners import (
    ListenerConfig,
    SecurityProtocol,
    listener_configs,
)
from penstock_broker.config.log_config import LOG_SETTINGS, LogConfig, topic_setting
from penstock_broker.config.sources import load_config, near_names, read_properties
from penstock_broker.config.table import (
    ConfigEntry,
    ConfigError,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    Password,
    Setting,
)

__all__ = [
    "BROKER_SETTINGS",
    "LOG_SETTINGS",
    "BrokerConfig",
    "ConfigEntry",
    "ConfigError",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "ListenerConfig",
    "LogConfig",
    "Password",
    "SecurityProtocol",
    "Setting",
    "known_broker_names",
    "listener_configs",
    "load_config",
    "near_names",
    "read_properties",
    "topic_setting",
]
