"""Ask a cluster for its metadata before anything is done with it: quietly, for a bounded time."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException

from penstock_client.errors import ClusterUnreachableError, TopicNotFoundError

PROBE_SECONDS = 3.0

quiet_log = logging.getLogger("penstock_client.librdkafka")
quiet_log.addHandler(logging.NullHandler())
quiet_log.propagate = False


def cluster_topics(
    config: Mapping[str, Any], seconds: float = PROBE_SECONDS
) -> dict[str, list[int]]:
    """{topic: partitions} of the cluster; no topic is created by asking.

    Raises ClusterUnreachableError naming the address and the last reason within ``seconds``.
    """
    reasons: list[str] = []
    settings = {
        **_of_a_consumer(config),
        "group.id": "penstock-client-probe",
        "allow.auto.create.topics": False,
        "error_cb": lambda error: reasons.append(error.str()),
        "logger": quiet_log,
    }
    consumer = Consumer(settings)
    try:
        found = consumer.list_topics(timeout=seconds).topics
    except KafkaException as error:
        consumer.poll(0)  # serves the callback with the reasons
        raise ClusterUnreachableError(
            str(config.get("bootstrap.servers", "")), error.args[0], reasons[-1:]
        ) from error
    finally:
        consumer.close()
    return {name: sorted(topic.partitions) for name, topic in found.items()}


def partitions_of(config: Mapping[str, Any], topic: str) -> list[int]:
    """The partitions of a topic. Raises TopicNotFoundError, and what ``cluster_topics`` raises."""
    topics = cluster_topics(config)
    if topic in topics:
        return topics[topic]
    close = difflib.get_close_matches(topic, topics, n=1)
    meant = f"; did you mean {close[0]}?" if close else "; its producer or its owner creates it"
    where = config.get("bootstrap.servers", "")
    raise TopicNotFoundError(
        KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART),
        f"{topic}: the topic does not exist at {where}{meant}",
    )


def _of_a_consumer(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings for a connection; a consumer would warn of a producer's settings."""
    begins = ("bootstrap.", "security.", "sasl.", "ssl.", "socket.", "client.", "oauth", "broker.")
    return {name: value for name, value in config.items() if name.startswith(begins)}
