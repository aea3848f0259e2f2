"""The configuration: defaults that differ, settings that are refused, and with which words."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaException

from penstock_client import AuditConfigError, AuditedProducer
from penstock_client.config import ProducerConfig

SERVERS = {"bootstrap.servers": "localhost:1"}


def _parse(**settings: Any) -> ProducerConfig:
    return ProducerConfig.parse(
        {**SERVERS, **{name.replace("_", "."): value for name, value in settings.items()}}
    )


def test_defaults() -> None:
    config = _parse()
    assert config.librdkafka == {
        **SERVERS,
        "partitioner": "murmur2_random",
        "enable.idempotence": True,
    }
    assert config.audit.enable
    assert config.audit.interval_ms == 10_000
    assert config.audit.topic == "__penstock_audit"
    assert config.audit.message_max_bytes == 1_000_000


def test_our_keys_do_not_reach_librdkafka() -> None:
    config = _parse(audit_topic="a", audit_interval_ms="500", audit_application="x")
    assert not [name for name in config.librdkafka if name.startswith("audit")]
    assert (config.audit.topic, config.audit.interval_ms) == ("a", 500)
    assert config.audit.application == "x"


def test_the_application_is_named_by_the_client_id() -> None:
    assert _parse(client_id="billing").audit.application == "billing"


@pytest.mark.parametrize(
    "settings",
    [
        {"acks": 1},
        {"acks": "1"},
        {"request.required.acks": 1},
        {"max.in.flight.requests.per.connection": 10},
        {"retries": 0},
        {"default.topic.config": {"acks": "1"}},
    ],
)
def test_idempotence_is_off_where_the_configuration_excludes_it(settings: dict[str, Any]) -> None:
    assert "enable.idempotence" not in ProducerConfig.parse({**SERVERS, **settings}).librdkafka


@pytest.mark.parametrize("settings", [{"acks": "all"}, {"acks": -1}, {"retries": 5}])
def test_idempotence_is_on_otherwise(settings: dict[str, Any]) -> None:
    assert ProducerConfig.parse({**SERVERS, **settings}).librdkafka["enable.idempotence"] is True


def test_what_is_said_explicitly_stays() -> None:
    config = _parse(partitioner="random", enable_idempotence=False)
    assert config.librdkafka["partitioner"] == "random"
    assert config.librdkafka["enable.idempotence"] is False


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"acks": 0}, "acks=0"),
        ({"acks": "0"}, "acks=0"),
        ({"request.required.acks": 0}, "acks=0"),
        ({"default.topic.config": {"acks": 0}}, "acks=0"),
        ({"delivery.report.only.error": True}, "acknowledgements"),
        ({"delivery.report.only.error": "true"}, "acknowledgements"),
        ({"transactional.id": "t"}, "transaction"),
        ({"audit.interval.ms": 5}, "between 100 and"),
        ({"audit.interval.ms": "soon"}, "whole number"),
        ({"audit.enable": "perhaps"}, "true or false"),
        ({"audit.topic": ""}, "name of a topic"),
        ({"audit.intervall.ms": 1000}, "audit.interval.ms"),
        ({"on_delivery": 5}, "callable"),
    ],
)
def test_refusals_say_what_to_do(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(AuditConfigError, match=words.replace(".", r"\.")):
        AuditedProducer({**SERVERS, **settings})


def test_unaudited_producers_may_have_them() -> None:
    producer = AuditedProducer({**SERVERS, "acks": 0, "audit.enable": False, "log_level": 0})
    assert producer.close()


def test_librdkafkas_own_refusals_come_through() -> None:
    with pytest.raises(KafkaException, match="No such configuration property"):
        AuditedProducer({**SERVERS, "no.such.thing": 1})


def test_the_constructor_takes_a_dict_keywords_or_both() -> None:
    with pytest.raises(TypeError):
        AuditedProducer(SERVERS, SERVERS)
    with pytest.raises(AuditConfigError, match="acks=0"):
        AuditedProducer(SERVERS, acks=0)
