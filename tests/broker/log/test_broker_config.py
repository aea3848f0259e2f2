"""Settings and error codes: complete, Kafka's names, Kafka's words."""

from __future__ import annotations

from pathlib import Path

import kafka.errors
import pytest

from penstock_broker.config import (
    LOG_SETTINGS,
    BrokerConfig,
    ConfigError,
    ConfigSource,
    LogConfig,
    known_broker_names,
    load_config,
)
from penstock_broker.errors import ErrorCode, KafkaError


def test_defaults_are_kafkas() -> None:
    """Those that clients and tools rely on, as Apache Kafka 4.3 prints them."""
    expected = {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "flush.messages": "9223372036854775807",
        "index.interval.bytes": "4096",
        "max.message.bytes": "1048588",
        "message.timestamp.after.max.ms": "3600000",
        "message.timestamp.type": "CreateTime",
        "min.insync.replicas": "1",
        "retention.bytes": "-1",
        "retention.ms": "604800000",
        "segment.bytes": "1073741824",
        "segment.ms": "604800000",
        "unclean.leader.election.enable": "false",
    }
    entries = {entry.name: entry for entry in BrokerConfig().describe_topic({})}
    assert {name: entries[name].value for name in expected} == expected
    assert all(entry.source is ConfigSource.DEFAULT for entry in entries.values())


def test_sources_and_synonyms() -> None:
    config = BrokerConfig.parse({"log.segment.bytes": "2000"})
    (plain,) = config.describe_topic({}, ["segment.bytes"])
    assert (plain.value, plain.source) == ("2000", ConfigSource.STATIC_BROKER)
    (own,) = config.describe_topic({"segment.bytes": "3000"}, ["segment.bytes"])
    assert (own.value, own.source) == ("3000", ConfigSource.TOPIC)
    assert [(s.name, s.value, s.source) for s in own.synonyms] == [
        ("segment.bytes", "3000", ConfigSource.TOPIC),
        ("log.segment.bytes", "2000", ConfigSource.STATIC_BROKER),
        ("log.segment.bytes", "1073741824", ConfigSource.DEFAULT),
    ]
    (broker,) = config.describe_broker(["log.segment.bytes"])
    assert (broker.value, broker.source) == ("2000", ConfigSource.STATIC_BROKER)
    assert config.topic_config({"segment.bytes": "3000"}).segment_bytes == 3000


def test_the_finer_unit_wins() -> None:
    config = BrokerConfig.parse(
        {"log.retention.hours": "2", "log.retention.minutes": "5", "log.roll.hours": "1"}
    )
    assert config.log.retention_ms == 300_000
    assert config.log.segment_ms == 3_600_000


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("segment.bytes", "x", "Not a number of type INT"),
        ("segment.bytes", "2147483648", "Not a number of type INT"),
        ("segment.bytes", "1", "at least 14"),
        ("retention.ms", "-2", "at least -1"),
        ("min.cleanable.dirty.ratio", "1.5", "no more than 1"),
        ("preallocate", "yes", "true or false"),
        ("cleanup.policy", "compact,shred", "must be one of"),
        ("message.timestamp.type", "createtime", "must be one of"),
        ("segment.byte", "1000", "did you mean segment.bytes"),
    ],
)
def test_bad_values_say_what_is_wrong(name: str, value: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("?", r"\?")) as error:
        LogConfig().with_overrides({name: value})
    assert name in str(error.value)


def test_nothing_need_become_of_old_segments() -> None:
    """As in Kafka: SUBTRACT of the only policy leaves none."""
    assert LogConfig().with_overrides({"cleanup.policy": ""}).cleanup_policy == ()


def test_file_and_assignments(tmp_path: Path) -> None:
    """A file written for Apache Kafka holds settings that are unknown here: logged, not refused."""
    path = tmp_path / "server.properties"
    path.write_text(
        "# a comment\n! another\n\nbroker.id=7\nlog.segment.bytes = 5000\nzookeeper.connect=z\n"
    )
    config, unknown = load_config(path, ["log.segment.bytes=6000", "num.partitions=3"])
    assert (config.broker_id, config.log.segment_bytes, config.num_partitions) == (7, 6000, 3)
    assert unknown == ["zookeeper.connect"]
    with pytest.raises(ConfigError, match=r"Unknown configuration zookeeper\.connect"):
        load_config(None, ["zookeeper.connect=z"])
    path.write_text("broker.id\n")
    with pytest.raises(ConfigError, match=r"server.properties:1: expected name=value"):
        load_config(path)


def test_every_setting_is_documented_and_described() -> None:
    for row in LOG_SETTINGS.values():
        assert row.doc.endswith("."), row.name
        assert row.parse(row.format(row.default)) == row.default
    names = {entry.name for entry in BrokerConfig().describe_broker()}
    aliases = {alias for row in LOG_SETTINGS.values() for alias, _ in row.aliases}
    assert names == known_broker_names() - aliases


def test_error_codes_agree_with_another_table() -> None:
    """kafka-python keeps its own: every code that it knows is here, with the same meaning."""
    differs = {
        "UNKNOWN": "UNKNOWN_SERVER_ERROR",
        "NO_ERROR": "NONE",
        "INVALID_FETCH_REQUEST": "INVALID_FETCH_SIZE",
        "NOT_LEADER_FOR_PARTITION": "NOT_LEADER_OR_FOLLOWER",
        "MESSAGE_SIZE_TOO_LARGE": "MESSAGE_TOO_LARGE",
        "INVALID_TOPIC": "INVALID_TOPIC_EXCEPTION",
        "INVALID_REPLICATION_ASSIGNMENT": "INVALID_REPLICA_ASSIGNMENT",
    }
    seen = 0
    for error in vars(kafka.errors).values():
        number = getattr(error, "errno", None)
        if not isinstance(number, int):
            continue
        seen += 1
        assert ErrorCode(number).name == differs.get(error.message, error.message)
    assert seen > 100


def test_errors_carry_code_and_words() -> None:
    error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert error.retriable
    assert str(error) == ErrorCode.NOT_LEADER_OR_FOLLOWER.message
    assert str(KafkaError(ErrorCode.INVALID_CONFIG, "because")) == "because"
    assert not ErrorCode.INVALID_RECORD.retriable
    assert ErrorCode(87) is ErrorCode.INVALID_RECORD
