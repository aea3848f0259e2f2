"""In-memory stand-ins for what the assets talk to, and a stage that plays one topic's life.

Real: definitions, Dagster, windows, books, equations, evidence, retention, incidents.
In memory: the cluster, the archive, the clock, the tables. Instead of a Spark job, the stage writes
the same rows.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import numpy as np
import pyarrow as pa
import pytest

from penstock_client.audit import Claim, TopicAccount
from penstock_platform.alerts import health
from penstock_platform.alerts.channels import Alerts, Channel, FileChannel, read_alerts
from penstock_platform.clock import to_iso
from penstock_platform.components.platform_component import PlatformSpec, build_platform
from penstock_platform.components.topic import build_topic
from penstock_platform.kafka.cluster import TopicDescription
from penstock_platform.kafka.model import (
    CommittedOffset,
    GroupDescription,
    LogSizes,
    TopicRef,
    Volume,
)
from penstock_platform.lake.content import WindowContent
from penstock_platform.lake.model.digests import digest_of
from penstock_platform.lake.model.rows import Rows
from penstock_platform.landing import assets as landing
from penstock_platform.ranges import OffsetRange
from penstock_platform.reconciliation.books import Bookkeeper
from penstock_platform.reconciliation.model.claims import StoredRecords
from penstock_platform.reconciliation.model.receipts import Receipt
from penstock_platform.reconciliation.store import BookStore
from penstock_platform.settings import Settings
from penstock_platform.testing.archive import MemoryArchive
from penstock_platform.testing.clock import EPOCH, ManualClock
from penstock_platform.testing.cluster import MemoryCluster
from penstock_platform.testing.connections import MemoryConnections
from penstock_platform.testing.events import make_event
from penstock_platform.topics.model.contract import Contract, load_contract
from penstock_platform.topics.model.declaration import (
    AUDIT_TOPIC,
    bronze_table,
    parse_topic,
    quarantine_table,
    silver_table,
)
from penstock_platform.topics.plan import TopicPlan
from penstock_platform.windows.model.window import Window
from penstock_platform.windows.store import WindowStore
from penstock_platform.windows.truncations import lost_from_log

INCARNATION = 4711
TOPIC = "shop.orders"
ROW_TYPES = (np.int32, np.int64, np.uint64)
CONTRACT = """{"title": "An order", "type": "object",
 "properties": {"id": {"type": "integer"}}, "required": ["id"]}"""
START = EPOCH


class MemoryGroups(dict[str, dict[int, int]]):
    """``KafkaGroups`` of the one topic: group, partition, committed offset."""

    def committed(self, names: Sequence[str]) -> dict[str, dict[tuple[str, int], CommittedOffset]]:
        return {
            name: {(TOPIC, p): CommittedOffset(at) for p, at in self.get(name, {}).items()}
            for name in names
        }

    def describe(self, names: Sequence[str]) -> dict[str, GroupDescription]:
        return {
            name: GroupDescription(name, "Empty" if name in self else "Dead", "classic", "", ())
            for name in names
        }


class MemoryKafka:
    """``KafkaCluster`` on a ``MemoryCluster``."""

    def __init__(self) -> None:
        self.memory = MemoryCluster()
        self.configs: dict[str, dict[str, str]] = {}
        self.groups = MemoryGroups()
        self.volume: Volume | None = Volume(2**40, 2**40)

    def __getattr__(self, name: str) -> Any:
        asked = ("ref", "offsets", "offsets_for_time", "broker_stamps", "read_range", "epoch_ends")
        if name in asked:
            return getattr(self.memory, name)
        raise AttributeError(name)

    def unread_offsets(self, topic: str, ranges: Sequence[OffsetRange]) -> tuple[OffsetRange, ...]:
        """No transactions here: every offset of the log holds a record."""
        del topic, ranges
        return ()

    def cluster_id(self) -> str:
        return self.memory.id

    def topics(self) -> list[str]:
        return sorted(self.memory.topics)

    def describe(self, topic: str) -> TopicDescription:
        ref = self.memory.ref(topic)
        configs = self.configs.get(topic, {})
        count = len(self.memory.topics[topic].partitions)
        return TopicDescription(ref, count, 1, dict(configs), dict(configs))

    def create(
        self, topic: str, partitions: int, replicas: int = 1, configs: Mapping[str, str] = {}
    ) -> bool:
        del replicas
        if topic in self.memory.topics:
            return False
        self.memory.add_topic(topic, partitions)
        self.configs[topic] = dict(configs)
        return True

    def grow(self, topic: str, partitions: int) -> None:
        found = self.memory.topics[topic].partitions
        found += type(self.memory)().add_topic("x", partitions - len(found)).partitions

    def alter(self, topic: str, configs: Mapping[str, str]) -> None:
        self.configs.setdefault(topic, {}).update(configs)

    def group_offsets(self, group: str, topic: str) -> dict[int, int]:
        del topic
        return self.groups.get(group, {})

    def log_sizes(self, topic: str) -> LogSizes:
        """A record takes ten bytes."""
        found = self.memory.offsets(topic)
        sizes = {p: 10 * (o.high_watermark - o.log_start) for p, o in found.items()}
        return LogSizes(sizes, self.volume)

    def delete_records(self, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        for p, offset in before.items():
            self.memory.topics[topic].partitions[p].log_start = offset
        return dict(before)


@dataclass
class MemoryLake:
    """``Lake`` in dictionaries: offsets of a window's rows by table."""

    rows: dict[tuple[str, str], dict[int, np.ndarray]] = field(default_factory=dict)
    contents: dict[tuple[str, str], dict[tuple[int, int], int]] = field(default_factory=dict)
    snapshots: dict[tuple[str, str, int], WindowContent] = field(default_factory=dict)
    commits: int = 0

    def put(self, table: str, window_id: str, rows: Mapping[int, Sequence[int]]) -> int:
        self.rows[table, window_id] = {
            p: np.asarray(sorted(offsets), np.int64) for p, offsets in rows.items() if len(offsets)
        }
        self.contents.pop((table, window_id), None)
        self.commits += 1
        return self.commits

    def offsets(
        self, table: str, window_id: str, snapshot_id: int | None = None
    ) -> dict[int, np.ndarray]:
        del snapshot_id
        return dict(self.rows.get((table, window_id), {}))

    def content(self, table: str, window_id: str) -> WindowContent:
        """Rows whose content is their offset, or what ``contents`` has at their place."""
        changed = self.contents.get((table, window_id), {})
        rows = [
            (p, int(o), (int(o) + 1) * 1_000_003 + changed.get((p, int(o)), int(o)) * (int(o) + 1))
            for p, offsets in self.offsets(table, window_id).items()
            for o in offsets
        ]
        held = Rows(*(np.array([r[n] for r in rows], k) for n, k in enumerate(ROW_TYPES)))
        digest = digest_of([held.digest])
        return WindowContent.of_rows(held, f"{digest}/{len(rows)}", {}, self.commits)

    def files(self, table: str, window_ids: Sequence[str]) -> Any:
        del window_ids
        return SimpleNamespace(fingerprint=lambda w: self.content(table, w).fingerprint)

    def content_at(self, table: str, window_id: str, snapshot_id: int) -> WindowContent | None:
        return self.snapshots.get((table, window_id, snapshot_id))

    def snapshots_with(self, table: str, window_id: str) -> list[Any]:
        kept = [n for t, w, n in self.snapshots if (t, w) == (table, window_id)]
        return [
            SimpleNamespace(snapshot_id=n, attempt_id="", parent_id=None)
            for n in sorted(kept, reverse=True)
        ]

    def current_snapshot(self, table: str) -> Any:
        known = any(name == table for name, _ in self.rows)
        return SimpleNamespace(snapshot_id=self.commits) if known else None

    def row_count(self, table: str, window_id: str | None = None) -> int:
        return sum(
            offsets.size
            for (name, window), found in self.rows.items()
            if name == table and window_id in (None, window)
            for offsets in found.values()
        )

    def digest_at(self, table: str, window_id: str, snapshot_id: int) -> str | None:
        content = self.content_at(table, window_id, snapshot_id)
        return content.digest if content is not None else None

    def location(self, table: str) -> str:
        return f"s3://memory/{table}"

    def columns(self, _table: str) -> list[tuple[str, str]]:
        return [("window_id", "string")]

    def scan_table(self, table: str, window_id: str, columns: tuple[str, ...]) -> pa.Table:
        assert columns == ("reason",)
        return pa.table({"reason": ["id is missing"] * self.row_count(table, window_id)})

    def values(self, _table: str, _window_id: str) -> Iterator[tuple[int, int, bytes | None]]:
        return iter(())


class StageConnections(MemoryConnections):
    """What the resource ``penstock`` is to the assets."""

    def __init__(self, home: Path) -> None:
        super().__init__(Settings(home=home))
        self.clock = ManualClock()
        self.archive = MemoryArchive()
        self.kafka = MemoryKafka()
        self.lake = MemoryLake()
        self.alert_file = home / "alerts.jsonl"
        self.use_alerts(FileChannel(self.alert_file))

    @property
    def windows(self) -> WindowStore:
        return WindowStore.of(self)

    @property
    def books(self) -> BookStore:
        return BookStore.of(self)

    def use_alerts(self, *channels: Channel) -> None:
        self.use(Alerts(channels))

    def shut(self) -> None:
        alerts = Alerts.of(self)
        super().shut()
        self.use(alerts)


class Stage:
    """One topic with a contract, and the platform around it."""

    def __init__(
        self,
        home: Path,
        *,
        partitions: int = 2,
        platform: PlatformSpec | None = None,
        **declared: Any,
    ) -> None:
        self.penstock = StageConnections(home)
        self.instance = dg.DagsterInstance.ephemeral()
        self.contract = load_contract(CONTRACT, "orders.schema.json")
        spec = parse_topic(
            {
                "metadata": {"name": TOPIC},
                "spec": {"partitions": partitions},
                "land": {"window": "minutely"},
                "schema": {"file": "orders.schema.json"},
                "retention": {"keep": "2m"},
                "audit": {"grace": "60s"},
                "owners": ["team:shop"],
                **declared,
            }
        )
        self.plan = TopicPlan(spec, "local", START, self.contract, "orders/defs.yaml:1")
        start = self.penstock.settings.dagster_home / "starts" / "local" / "shop.orders.json"
        start.parent.mkdir(parents=True)
        start.write_text(json.dumps({"v": 1, "start": to_iso(START)}))
        built = build_platform(
            platform or PlatformSpec(), [self.plan], self.penstock.settings, has_quality=False
        )
        around = dg.Definitions(
            jobs=built.jobs,
            sensors=built.sensors,
            schedules=built.schedules,
            assets=built.assets,
            asset_checks=built.asset_checks,
            resources={"penstock": dg.ResourceDefinition.hardcoded_resource(self.penstock)},
        )
        self.defs = dg.Definitions.merge(build_topic(self.plan), around)
        self.refuse_rows: Callable[[Window], Mapping[int, set[int]]] = lambda _window: {}
        self.events = 0

    # --- what happens outside ---

    @property
    def topic(self) -> str:
        return self.plan.name

    @property
    def ref(self) -> TopicRef:
        return self.penstock.kafka.ref(self.topic)

    def create_topics(self) -> None:
        spec = self.plan.spec
        self.penstock.kafka.create(self.topic, spec.spec.partitions, configs=spec.broker_configs)
        self.penstock.kafka.create(AUDIT_TOPIC, 1)

    def produce(self, records: int, partition: int = 0) -> OffsetRange:
        memory = self.penstock.kafka.memory
        first = min([memory.append(self.topic, partition, b'{"id": 1}') for _ in range(records)])
        return OffsetRange(partition, first, first + records)

    def claim(self, *ranges: OffsetRange) -> None:
        """Publish the evidence for these offsets; sequences are offsets, digests 0."""
        self.events += 1
        account = TopicAccount(
            self.topic,
            claims=tuple(Claim(r.partition, r.start, r.end, 0) for r in ranges),
            sequences=tuple((r.start, r.end) for r in ranges),
            records=sum(map(len, ranges)),
        )
        event = make_event(
            INCARNATION,
            self.events,
            account,
            sent_at_ms=int(self.penstock.clock.now().timestamp() * 1000),
            uuid=uuid.uuid4().hex,
        )
        self.penstock.kafka.memory.append(AUDIT_TOPIC, 0, event.to_bytes())

    def pass_time(self, seconds: float) -> None:
        self.penstock.clock.advance(seconds)

    def newest(self) -> Window:
        window = self.penstock.windows.newest(self.ref)
        assert window is not None
        return window

    def freeze_without_evidence(self) -> None:
        """Make the topics and freeze a window of five records that no producer claims."""
        self.create_topics()
        self.pass_time(30)
        self.tick("window_sensor")
        self.produce(5)
        self.pass_time(60)
        self.tick("window_sensor")
        self.pass_time(10)

    def frozen(self, records: int = 100) -> Window:
        """Produce, claim, let the minute close and freeze: the window is ready to land."""
        self.claim(self.produce(records))
        self.pass_time(60)
        self.tick("window_sensor")
        return self.newest()

    def landed(self, records: int = 100) -> Window:
        window = self.frozen(records)
        assert self.land(window).success
        return window

    # --- what Dagster does ---

    def sensor_context(self, name: str, cursor: str | None = None) -> Any:
        return dg.build_sensor_context(
            instance=self.instance,
            definitions=self.defs,
            sensor_name=name,
            cursor=cursor,
            resources={"penstock": self.penstock},
        )

    def tick(self, name: str, cursor: str | None = None) -> Any:
        """One evaluation of a sensor, named without the prefix; its result."""
        name = self.plan.names.of(name)
        sensor = self.defs.resolve_sensor_def(name)
        with self.sensor_context(name, cursor) as context:
            return sensor.evaluate_tick(context)

    def run(self, job: str, **options: Any) -> dg.ExecuteInProcessResult:
        """One run of a job, named with or without the prefix."""
        return self.job(job).execute_in_process(
            instance=self.instance, raise_on_error=False, **options
        )

    def job(self, name: str) -> dg.JobDefinition:
        prefix = self.plan.names.prefix
        return self.defs.resolve_job_def(f"{prefix}{name.removeprefix(prefix)}")

    def create_run(
        self, job: str, tags: Mapping[str, str] | None = None, **options: Any
    ) -> dg.DagsterRun:
        """A run as the daemon makes it, not started."""
        made = self.job(job)
        tags = {**made.run_tags, **(tags or {})}
        return self.instance.create_run_for_job(made, tags=tags, **options)

    def land(self, window: Window, **options: Any) -> dg.ExecuteInProcessResult:
        tags = {"penstock/window_id": window.window_id}
        return self.run(self.plan.landing_job, partition_key=window.window, tags=tags, **options)

    def alerts(self) -> list[dict[str, Any]]:
        return list(read_alerts(self.penstock.alert_file))

    # --- what Spark would do ---

    def land_rows(
        self, penstock: StageConnections, window: Window, at: Callable[[str], None]
    ) -> Any:
        at("planned")
        refused = self.refuse_rows(window)
        lost = lost_from_log(penstock, window, penstock.kafka.offsets(self.topic))  # type: ignore[arg-type]
        had = penstock.lake.offsets(bronze_table(self.topic), window.window_id)
        rows = {}
        for r in window.ranges:
            gone = {o for x in lost if x.partition == r.partition for o in range(x.start, x.end)}
            kept = gone & set(had.get(r.partition, np.empty(0, np.int64)).tolist())
            read = set(range(r.start, r.end)) - gone - refused.get(r.partition, set())
            rows[r.partition] = sorted(read | kept)
        return SimpleNamespace(
            receipt=self._receipt(bronze_table(self.topic), window, rows), recovered=0
        )

    def parse_rows(
        self,
        penstock: StageConnections,
        window: Window,
        contract: Contract,
        at: Callable[[str], None],
    ) -> Any:
        at("planned")
        landed = penstock.lake.offsets(bronze_table(self.topic), window.window_id)
        bad = {p: offsets[:1] for p, offsets in landed.items()}
        good = {p: offsets[1:] for p, offsets in landed.items()}
        return SimpleNamespace(
            silver=self._receipt(silver_table(self.topic), window, good),
            quarantine=self._receipt(quarantine_table(self.topic), window, bad),
        )

    def _receipt(self, table: str, window: Window, rows: Mapping[int, Any]) -> Receipt:
        lake = self.penstock.lake
        snapshot = lake.put(table, window.window_id, rows)
        content = lake.content(table, window.window_id)
        lake.snapshots[table, window.window_id, snapshot] = content
        return self.penstock.books.add_receipt(
            Receipt.of(
                window,
                table=table,
                attempt_id=uuid.uuid4().hex,
                snapshot_id=snapshot,
                rows=sum(len(offsets) for offsets in rows.values()),
                size_bytes=1,
                seconds=0.5,
                landed_at=to_iso(self.penstock.clock.now()),
                code_version="test",
                digest=content.digest,
            )
        )


def stored_in_memory(
    self: Bookkeeper, windows: Sequence[Window], wanted: Sequence[OffsetRange]
) -> dict[int, StoredRecords]:
    """What the Spark read gives: every record in bronze is of the one producer, digest 0."""
    del wanted
    found: dict[int, list[np.ndarray]] = {}
    for window in windows:
        table = bronze_table(window.topic)
        for p, offsets in self._penstock.lake.offsets(table, window.window_id).items():
            found.setdefault(p, []).append(offsets)
    arrays = {p: np.concatenate(parts) for p, parts in found.items()}
    return {
        p: StoredRecords.of(o, np.full(o.size, INCARNATION), o, np.zeros(o.size, np.uint64))
        for p, o in arrays.items()
    }


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Stage]:
    """Make a stage: ``stage()``; keyword arguments go into the topic's declaration."""
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    # How full this machine's disk is decides no test.
    plenty = SimpleNamespace(total=2**40, used=0, free=2**40)
    monkeypatch.setattr(health.shutil, "disk_usage", lambda _path: plenty)
    # A step that fails is tried again as often as it really is, without the pauses.
    at_once = dg.RetryPolicy(max_retries=landing.RETRIES.max_retries)
    monkeypatch.setattr(landing, "RETRIES", at_once)

    def make(**declared: Any) -> Stage:
        made = Stage(tmp_path / "home", **declared)
        monkeypatch.setattr(landing, "land_window", made.land_rows)
        monkeypatch.setattr(landing, "parse_window", made.parse_rows)
        monkeypatch.setattr(Bookkeeper, "_stored", stored_in_memory)
        return made

    return make


@pytest.fixture
def ready(stage: Callable[..., Stage]) -> Stage:
    """A stage whose topics are there, half a minute into the first window."""
    made = stage()
    made.create_topics()
    made.pass_time(30)
    made.tick("window_sensor")  # decides where the first window begins
    return made


def minutes(count: int) -> timedelta:
    return timedelta(minutes=count)
