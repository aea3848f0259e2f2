"""The audited Kafka client: every record stamped, every acknowledgement accounted for."""

from __future__ import annotations

from penstock_client.audit import (
    DEFAULT_AUDIT_TOPIC,
    AuditFormatError,
    AuditHeader,
    MonitoringEvent,
    record_digest,
)
from penstock_client.errors import (
    AuditConfigError,
    NotAuthorizedError,
    OffsetsLostError,
    ProducerClosedError,
    RecordTooLargeError,
    StreamClosedError,
    StreamError,
    TopicNotFoundError,
)
from penstock_client.lifecycle import exit_on_sigterm
from penstock_client.producer import AuditedProducer
from penstock_client.stream import MessageStream

__all__ = [
    "DEFAULT_AUDIT_TOPIC",
    "AuditConfigError",
    "AuditFormatError",
    "AuditHeader",
    "AuditedProducer",
    "MessageStream",
    "MonitoringEvent",
    "NotAuthorizedError",
    "OffsetsLostError",
    "ProducerClosedError",
    "RecordTooLargeError",
    "StreamClosedError",
    "StreamError",
    "TopicNotFoundError",
    "exit_on_sigterm",
    "record_digest",
]
