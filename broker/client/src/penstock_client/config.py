"""A producer's configuration: librdkafka's keys, four of ours, and the defaults that differ.

Differences from a bare producer, all of them overridable unless marked:

* ``partitioner`` is ``murmur2_random``, the Java client's choice, so that both put a key into the
  same partition (librdkafka's own default is ``consistent_random``).
* ``enable.idempotence`` is true, unless the configuration says what excludes it (``acks`` other
  than all, more than five requests in flight, no retries): then it is off, as in the Java client.
* ``acks=0``, ``delivery.report.only.error`` and ``transactional.id`` are refused (not overridable):
  without an acknowledgement there is nothing to account for, and an aborted transaction would take
  back what was claimed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from penstock_client.audit import DEFAULT_AUDIT_TOPIC
from penstock_client.errors import AuditConfigError

DeliveryCallback = Callable[[Any, Any], None]

INTERVAL_MS_DEFAULT = 10_000
INTERVAL_MS_MIN = 100
INTERVAL_MS_MAX = 3_600_000
MESSAGE_MAX_BYTES_DEFAULT = 1_000_000  # librdkafka's own

_ACKS = ("acks", "request.required.acks")
_MESSAGE_MAX_BYTES = "message.max.bytes"
_RETRIES = ("retries", "message.send.max.retries")
_IN_FLIGHT = ("max.in.flight", "max.in.flight.requests.per.connection")


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """The producer's own keys: ``audit.enable``, ``.interval.ms``, ``.topic``, ``.application``."""

    enable: bool
    interval_ms: int
    topic: str
    application: str
    client_id: str
    message_max_bytes: int


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """What was asked for, taken apart: librdkafka's part, ours, and the default callback."""

    librdkafka: dict[str, Any]
    audit: AuditSettings
    on_delivery: DeliveryCallback | None

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> ProducerConfig:
        """Check and complete a configuration; raises AuditConfigError with what to do."""
        config = dict(given)
        audit = _audit_settings(config)
        on_delivery = config.pop("on_delivery", None)
        if on_delivery is not None and not callable(on_delivery):
            raise AuditConfigError("on_delivery must be callable: on_delivery(error, message)")
        topic_config = config.get("default.topic.config") or {}
        effective = {**config, **topic_config}
        if audit.enable:
            _refuse_what_cannot_be_audited(effective)
        if "partitioner" not in effective:
            config["partitioner"] = "murmur2_random"
        if "enable.idempotence" not in effective and _idempotence_possible(effective):
            config["enable.idempotence"] = True
        return cls(config, audit, on_delivery)


def _audit_settings(config: dict[str, Any]) -> AuditSettings:
    enable = _boolean("audit.enable", config.pop("audit.enable", True))
    interval_ms = _integer(
        "audit.interval.ms", config.pop("audit.interval.ms", INTERVAL_MS_DEFAULT)
    )
    if not INTERVAL_MS_MIN <= interval_ms <= INTERVAL_MS_MAX:
        raise AuditConfigError(
            f"audit.interval.ms={interval_ms}: must be between {INTERVAL_MS_MIN} and "
            f"{INTERVAL_MS_MAX} milliseconds"
        )
    topic = config.pop("audit.topic", DEFAULT_AUDIT_TOPIC)
    if not isinstance(topic, str) or not topic:
        raise AuditConfigError(f"audit.topic={topic!r}: must be the name of a topic")
    client_id = str(config.get("client.id", "rdkafka"))
    application = config.pop("audit.application", None)
    if application is None:
        program = PurePath(sys.argv[0]).name if sys.argv else ""
        application = client_id if "client.id" in config else program or client_id
    unknown = sorted(name for name in config if name.startswith("audit."))
    if unknown:
        raise AuditConfigError(
            f"unknown setting {unknown[0]!r}: there are audit.enable, audit.interval.ms, "
            "audit.topic and audit.application"
        )
    return AuditSettings(
        enable=enable,
        interval_ms=interval_ms,
        topic=topic,
        application=str(application),
        client_id=client_id,
        message_max_bytes=_integer(
            _MESSAGE_MAX_BYTES, config.get(_MESSAGE_MAX_BYTES, MESSAGE_MAX_BYTES_DEFAULT)
        ),
    )


def _refuse_what_cannot_be_audited(config: Mapping[str, Any]) -> None:
    if str(_first(config, _ACKS, "all")).strip() == "0":
        raise AuditConfigError(
            "acks=0: the broker acknowledges nothing, so nothing can be accounted for. "
            "Use acks=all (or 1), or audit.enable=false"
        )
    if _boolean("delivery.report.only.error", config.get("delivery.report.only.error", False)):
        raise AuditConfigError(
            "delivery.report.only.error=true hides the acknowledgements that the audit counts. "
            "Remove it, or set audit.enable=false"
        )
    if config.get("transactional.id"):
        raise AuditConfigError(
            "transactional.id: an aborted transaction takes back acknowledged records, which the "
            "audit cannot follow. Remove it, or use confluent_kafka.Producer for transactions"
        )


def _idempotence_possible(config: Mapping[str, Any]) -> bool:
    acks = str(_first(config, _ACKS, "all")).strip()
    in_flight = _first(config, _IN_FLIGHT, 5)
    retries = _first(config, _RETRIES, 1)
    return acks in {"all", "-1"} and int(in_flight) <= 5 and int(retries) > 0


def _first(config: Mapping[str, Any], names: tuple[str, ...], default: Any) -> Any:
    for name in names:
        if name in config:
            return config[name]
    return default


def _boolean(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text not in {"true", "false"}:
        raise AuditConfigError(f"{name}={value!r}: must be true or false")
    return text == "true"


def _integer(name: str, value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        raise AuditConfigError(f"{name}={value!r}: must be a whole number") from error
