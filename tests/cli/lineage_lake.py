"""A topic with windows, receipts and real Iceberg tables on local files, for lineage tests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from penstock_client.audit import HEADER_NAME, AuditHeader
from penstock_platform.kafka.errors import UnknownTopicError
from penstock_platform.lake.tables import Lake
from penstock_platform.reconciliation.model.receipts import Receipt
from penstock_platform.reconciliation.store import BookStore
from penstock_platform.settings import Settings
from penstock_platform.testing.archive import MemoryArchive
from penstock_platform.testing.clock import ManualClock
from penstock_platform.testing.cluster import MemoryCluster
from penstock_platform.testing.connections import MemoryConnections
from penstock_platform.testing.windows import make_window
from penstock_platform.topics.model.declaration import bronze_table, quarantine_table, silver_table
from penstock_platform.windows.freezer import truncations
from penstock_platform.windows.model.truncation import chain_ends
from penstock_platform.windows.model.window import StartOffset, Window
from penstock_platform.windows.store import WindowStore

TOPIC = "shop.orders"
HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
BRONZE = pa.schema(
    [
        ("window_id", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("value", pa.binary()),
        ("headers", pa.list_(HEADER)),
    ]
)
SILVER = pa.schema(
    [
        ("window_id", pa.string()),
        ("_kafka_partition", pa.int32()),
        ("_kafka_offset", pa.int64()),
        ("total", pa.float64()),
        ("customer", pa.string()),
    ]
)
QUARANTINE = pa.schema(
    [
        ("window_id", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("reason", pa.string()),
    ]
)


class Cluster(MemoryCluster):
    """A cluster that also says its id and which topics it does not have."""

    def cluster_id(self) -> str:
        return self.id

    def ref(self, topic: str) -> Any:
        if topic not in self.topics:
            raise UnknownTopicError(f"the cluster has no topic {topic}; see: penstock topic list")
        return super().ref(topic)


class Shop:
    """``shop.orders`` with two partitions: ``freeze`` its log, ``land`` a window, ask."""

    def __init__(self, home: Path) -> None:
        self.kafka = Cluster()
        self.kafka.add_topic(TOPIC, 2)
        settings = Settings(home=home)
        self.lake = Lake(settings)
        self.catalog = SqlCatalog(
            "lake", uri=f"sqlite:///{home}/catalog.db", warehouse=f"file://{home}/warehouse"
        )
        self.lake._opened = self.catalog
        for namespace in ("bronze", "silver", "quarantine", "marts"):
            self.catalog.create_namespace(namespace)
        self.penstock = MemoryConnections(
            settings,
            kafka=self.kafka,
            archive=MemoryArchive(),
            lake=self.lake,
            clock=ManualClock(),
        )

    @property
    def windows(self) -> WindowStore:
        return WindowStore.of(self.penstock)

    @property
    def ref(self) -> Any:
        return self.kafka.ref(TOPIC)

    def produce(self, count: int, partition: int = 0) -> None:
        for _ in range(count):
            self.kafka.append(TOPIC, partition)

    def freeze(self, begin: int = 0) -> Window:
        """The next window: what the log has beyond the chain's end."""
        newest = self.windows.newest(self.ref)
        ends = chain_ends(newest, {0: StartOffset(0, begin)})
        offsets = self.kafka.offsets(TOPIC)
        cuts = truncations(self.kafka, TOPIC, ends if newest else {}, offsets)  # type: ignore[arg-type]
        starts = {p: end.offset for p, end in ends.items()}
        starts |= {p: cut.offset for p, cut in cuts.items()}
        ranges = {p: (starts.get(p, 0), o.high_watermark) for p, o in offsets.items()}
        window = make_window(ranges, previous=newest, topic=TOPIC, topic_id=self.ref.topic_id)
        partitions = tuple(
            replace(p, leader_epoch=offsets[p.p].leader_epoch, truncated=cuts.get(p.p))
            for p in window.partitions
        )
        before = newest.last_truncation if newest else None
        window = replace(
            window, partitions=partitions, last_truncation=window.sequence if cuts else before
        )
        assert self.windows.publish(window)
        return window

    def land(self, window: Window, rows: list[dict[str, Any]], table: str = "") -> Receipt:
        """Put rows into a table, bronze by default, and leave a receipt."""
        name = table or bronze_table(TOPIC)
        schema = QUARANTINE if ".quarantine." in name else SILVER if ".silver." in name else BRONZE
        identifier = name.removeprefix("lake.")
        data = pa.Table.from_pylist([{"window_id": window.window_id, **r} for r in rows], schema)
        if not self.catalog.table_exists(identifier):
            with self.catalog.create_table(identifier, data.schema).update_spec() as spec:
                spec.add_identity("window_id")
        self.catalog.load_table(identifier).append(data)
        snapshot = self.catalog.load_table(identifier).current_snapshot()
        assert snapshot is not None
        receipt = Receipt.of(
            window,
            table=name,
            attempt_id=f"attempt-{window.sequence}",
            snapshot_id=snapshot.snapshot_id,
            rows=len(rows),
            size_bytes=1,
            seconds=0.1,
            landed_at=window.frozen_at,
            code_version="test",
        )
        return BookStore.of(self.penstock).add_receipt(receipt)

    def land_all(self, window: Window) -> None:
        """The window's records in bronze; even offsets in silver, odd ones in quarantine."""
        places = [(r.partition, o) for r in window.ranges for o in range(r.start, r.end)]
        self.land(window, [bronze_row(p, o) for p, o in places])
        parsed = [
            {"_kafka_partition": p, "_kafka_offset": o, "total": float(o), "customer": f"c-{p}"}
            for p, o in places
            if o % 2 == 0
        ]
        self.land(window, parsed, silver_table(TOPIC))
        rest = [
            {"partition": p, "offset": o, "reason": "total is missing"} for p, o in places if o % 2
        ]
        self.land(window, rest, quarantine_table(TOPIC))


def bronze_row(partition: int, offset: int) -> dict[str, Any]:
    stamp = AuditHeader(4711, offset + 1, 1_700_000_000_000, "till-3").encode()
    return {
        "topic": TOPIC,
        "partition": partition,
        "offset": offset,
        "value": b"{}",
        "headers": [{"key": HEADER_NAME, "value": stamp}],
    }
