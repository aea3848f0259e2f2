"""Real audited producers, a real broker, real windows: what they claim is what is stored.

The stored records are read back through the protocol here, so that no Spark is needed; what Spark
computes from bronze is tested against the same functions elsewhere.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid

import pytest
from confluent_kafka import Producer

from penstock_client import AuditedProducer
from penstock_client.audit import find_audit_header, record_digest
from penstock_platform.reconciliation.evidence import EvidenceReader
from penstock_platform.reconciliation.model.books import WindowState
from penstock_platform.reconciliation.model.claims import StoredRecords
from penstock_platform.reconciliation.store import BookStore
from penstock_platform.system_clock import SystemClock
from penstock_platform.testing.archive import MemoryArchive
from penstock_platform.testing.clock import ManualClock
from penstock_platform.topics.model.declaration import AUDIT_TOPIC, load_topic
from penstock_platform.windows.freezer import freeze_due
from penstock_platform.windows.store import WindowStore

pytestmark = pytest.mark.services
AUDIT = load_topic(f"metadata: {{name: {AUDIT_TOPIC}}}\nland: {{window: minutely}}")

CHATTERBOX = """
import sys
from penstock_client import AuditedProducer
producer = AuditedProducer({"bootstrap.servers": sys.argv[1], "audit.interval.ms": 3600000})
for n in range(50):
    producer.produce(sys.argv[2], value=b"%d" % n)
while producer.poll(0.05) or len(producer):
    pass
print("sent", flush=True)
sys.stdin.read()
"""


class Desk:
    """A topic, its windows frozen when asked, and the judgement of the newest."""

    def __init__(self, kafka, settings):
        self.kafka, self.address = kafka, settings.bootstrap_servers
        self.topic = f"evidence-{uuid.uuid4().hex[:8]}"
        self.spec = load_topic(f"metadata: {{name: {self.topic}}}\nland: {{window: minutely}}")
        kafka.create(self.topic, 3)
        kafka.create(AUDIT_TOPIC, 3)
        self.clock = ManualClock(SystemClock().now().replace(second=0, microsecond=0))
        self.start = self.clock.now()
        archive = MemoryArchive()
        self.store, self.books = WindowStore(archive), BookStore(archive)
        self.reader = EvidenceReader(kafka, self.store, self.books, self.clock)

    def freeze(self):
        self.clock.advance(60)
        for spec in (AUDIT, self.spec):
            [window] = freeze_due(self.kafka, self.store, spec, self.clock, start=self.start)
        return window

    def stored(self, _windows, wanted):
        found: dict = {r.partition: [] for r in wanted}
        for message in self.kafka.read_range(self.topic, wanted):
            header = find_audit_header(message.headers())
            row = (message.offset(), -1, -1, 0)
            if header is not None:
                digest = record_digest(header.sequence, message.key(), message.value())
                row = (message.offset(), header.incarnation, header.sequence, digest)
            found[message.partition()].append(row)
        return {p: StoredRecords.of(*zip(*rows, strict=True)) for p, rows in found.items() if rows}

    def judge(self, window):
        return self.reader.judge(window, self.spec, self.stored)[0]


@pytest.fixture
def desk(kafka, cluster_settings):
    return Desk(kafka, cluster_settings)


def test_windows_of_interleaved_producers_balance(desk):
    windows = []
    with (
        AuditedProducer({"bootstrap.servers": desk.address, "linger.ms": 1}) as first,
        AuditedProducer({"bootstrap.servers": desk.address, "linger.ms": 1}) as second,
    ):
        for part in range(3):
            for n in range(500):
                for producer in (first, second):
                    producer.produce(desk.topic, key=b"%d" % (n % 7), value=b"%d" % n)
            first.flush(30)
            if part == 1:
                second.flush(30)
            windows.append(desk.freeze())
    windows.append(desk.freeze())
    results = [desk.judge(window) for window in windows]
    assert [r.state for r in results] == [WindowState.BALANCED] * 4, [r.findings for r in results]
    assert sum(r.expected for r in results) == sum(r.found for r in results) == 3000
    assert sum(int(r.detail["digests_judged"]) for r in results) > 0
    assert sum(int(r.detail["digests_unjudged"]) for r in results) == 0


def test_a_killed_producers_records_are_pending_then_unaudited(desk):
    process = subprocess.Popen(
        [sys.executable, "-c", CHATTERBOX, desk.address, desk.topic],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == b"sent"
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=120)
    window = desk.freeze()
    assert window.record_count == 50
    assert desk.judge(window).state is WindowState.PENDING
    desk.clock.advance(desk.spec.audit.grace.total_seconds())
    result = desk.judge(window)
    assert result.state is WindowState.UNAUDITED
    assert {finding.kind for finding in result.findings} == {"incarnation_silent"}
    assert sum(finding.count for finding in result.findings) == 50


def test_records_of_a_bare_producer_are_unaudited(desk):
    producer = Producer({"bootstrap.servers": desk.address})
    for _ in range(10):
        producer.produce(desk.topic, value=b"x")
    assert producer.flush(30) == 0
    result = desk.judge(desk.freeze())
    assert result.state is WindowState.UNAUDITED
    assert result.detail["unstamped"] == 10
