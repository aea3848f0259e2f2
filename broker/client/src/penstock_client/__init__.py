"""The audited Kafka client: every record stamped, every acknowledgement accounted for."""

from __future__ import annotations

from penstock_client.audit import (
    DEFAULT_AUDIT_TOPIC,
    AuditFormatError,
    AuditHeader,
    MonitoringEvent,
    record_digest,
)

__all__ = [
    "DEFAULT_AUDIT_TOPIC",
    "AuditFormatError",
    "AuditHeader",
    "MonitoringEvent",
    "record_digest",
]
