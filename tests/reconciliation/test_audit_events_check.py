"""The check on the audit topic: what is no event is seen, with its source, and alerts by share."""

from __future__ import annotations

import dagster as dg
import pytest

from penstock_client.audit import MonitoringEvent
from penstock_platform.reconciliation import events_check as audit_events
from penstock_platform.reconciliation.events_check import events_readable
from penstock_platform.testing.archive import MemoryArchive
from penstock_platform.testing.clock import EPOCH, ManualClock
from penstock_platform.testing.cluster import MemoryCluster
from penstock_platform.testing.connections import MemoryConnections
from penstock_platform.topics.model.declaration import AUDIT_TOPIC, load_topic
from penstock_platform.topics.plan import TopicPlan
from penstock_platform.windows.freezer import freeze_due
from penstock_platform.windows.store import WindowStore

SPEC = load_topic(f"metadata: {{name: {AUDIT_TOPIC}}}\nland: {{window: minutely}}")
PLAN = TopicPlan(SPEC, "local", EPOCH, None, "audit/defs.yaml:1")
EVENT = MonitoringEvent("u", 5, 1, False, "c", "shop", "web-1", 1, 0, 0, 1000).to_bytes()


class Audit:
    def __init__(self) -> None:
        self.kafka, self.clock = MemoryCluster(), ManualClock()
        self.penstock = MemoryConnections(kafka=self.kafka, archive=MemoryArchive())
        self.kafka.add_topic(AUDIT_TOPIC, 2)

    def window(self, *values: bytes | None) -> dg.AssetCheckResult:
        """Freeze these records as a window, and judge it."""
        for n, value in enumerate(values):
            self.kafka.append(AUDIT_TOPIC, n % 2, value)
        self.clock.advance(60)
        freeze_due(self.kafka, WindowStore.of(self.penstock), SPEC, self.clock, start=EPOCH)
        return self.judge()

    def judge(self) -> dg.AssetCheckResult:
        return events_readable(self.penstock, PLAN)


def test_events_alone_pass() -> None:
    audit = Audit()
    assert audit.judge().passed, "nothing is frozen yet"
    result = audit.window(EVENT, EVENT)
    assert result.passed
    assert result.metadata["events"].value == 2


def test_one_stray_record_among_many_is_a_warning_that_names_it() -> None:
    audit = Audit()
    result = audit.window(*[EVENT] * 199, b"hello")
    assert not result.passed
    assert result.severity is dg.AssetCheckSeverity.WARN
    assert "1 of 200 records" in str(result.description)
    assert "an unknown source" in str(result.description)
    assert audit.window(EVENT).passed, "a window later it is gone"


def test_a_larger_share_is_an_error_with_the_source() -> None:
    forged = EVENT.replace(b'"v":2', b'"v":3')
    result = Audit().window(*[EVENT] * 50, forged, None)
    assert result.severity is dg.AssetCheckSeverity.ERROR
    assert result.metadata["malformed"].value == 2
    rows = result.metadata["sources"].records
    sources = {record.data["source"] for record in rows}
    assert sources == {"shop on web-1, incarnation 5", "an unknown source"}


def test_no_more_than_a_bound_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_events, "EVENTS_MAX", 10)
    audit = Audit()
    result = audit.window(*[b"x"] * 40, *[EVENT] * 10)
    assert (result.passed, result.metadata["events"].value) == (True, 10)
    audit.kafka.topics[AUDIT_TOPIC].partitions[0].log_start = 24
    assert audit.judge().metadata["events"].value == 6, "what the log still has"
