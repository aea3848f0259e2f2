"""A topic's life in Dagster on a real broker, S3, lake and Spark: frozen by the sensor, landed and
judged by its run, damaged, found, landed again, swept. And what transactions leave in it.

Only the clock is set by hand. The tests on ``tests/stage.py`` play many more stories,
on simulated services.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from confluent_kafka import Producer

from penstock_client import AuditedProducer
from penstock_platform.clock import to_iso
from penstock_platform.components.platform_component import PlatformSpec, build_platform
from penstock_platform.components.topic import build_topic
from penstock_platform.connections import Connections
from penstock_platform.landing.attempt import land_window
from penstock_platform.ranges import OffsetRange
from penstock_platform.reconciliation.books import Bookkeeper
from penstock_platform.reconciliation.model.books import Book, Equation, WindowState
from penstock_platform.reconciliation.store import BookStore
from penstock_platform.settings import Settings
from penstock_platform.testing.clock import EPOCH, ManualClock
from penstock_platform.topics.model.contract import load_contract
from penstock_platform.topics.model.declaration import (
    AUDIT_TOPIC,
    bronze_table,
    parse_topic,
    silver_table,
)
from penstock_platform.topics.plan import TopicPlan
from penstock_platform.windows.model.window import Window
from penstock_platform.windows.store import WindowStore

pytestmark = [pytest.mark.services, pytest.mark.xdist_group("lake")]

CONTRACT = '{"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}'
FIRST, _, PARSED = Equation


class Topic:
    """A declared topic with its definitions, on real services."""

    def __init__(self, settings: Settings) -> None:
        self.penstock = Connections(settings)
        self.clock = ManualClock()
        self.penstock.clock = self.clock
        self.instance = dg.DagsterInstance.ephemeral()
        self.name = f"orders-{uuid.uuid4().hex[:6]}"
        spec = parse_topic(
            {
                "metadata": {"name": self.name},
                "spec": {"partitions": 2},
                "land": {"window": "minutely"},
                "schema": {"file": "orders.schema.json"},
                "retention": {"keep": "2m"},
            }
        )
        contract = load_contract(CONTRACT, "orders.schema.json")
        self.plan = TopicPlan(spec, settings.cluster, EPOCH, contract, "orders/defs.yaml:1")
        start = settings.dagster_home / "starts" / settings.cluster / f"{self.name}.json"
        start.parent.mkdir(parents=True, exist_ok=True)
        start.write_text(json.dumps({"v": 1, "start": to_iso(EPOCH)}))
        built = build_platform(PlatformSpec(), [self.plan], settings, has_quality=False)
        around = dg.Definitions(
            jobs=built.jobs,
            sensors=built.sensors,
            schedules=built.schedules,
            assets=built.assets,
            asset_checks=built.asset_checks,
            resources={"penstock": dg.ResourceDefinition.hardcoded_resource(self.penstock)},
        )
        self.defs = dg.Definitions.merge(build_topic(self.plan), around)
        self.penstock.kafka.create(self.name, 2, configs=spec.broker_configs)
        self.penstock.kafka.create(AUDIT_TOPIC, 1)

    def produce(self, values: list[bytes]) -> None:
        config = {"bootstrap.servers": self.penstock.settings.bootstrap_servers}
        with AuditedProducer(config) as producer:
            for number, value in enumerate(values):
                producer.produce(self.name, value, partition=number % 2)

    def window_tick(self) -> list[Any]:
        """What the window sensor requests now."""
        sensor = self.defs.resolve_sensor_def("penstock_window_sensor")
        with dg.build_sensor_context(
            instance=self.instance,
            definitions=self.defs,
            sensor_name="penstock_window_sensor",
            resources={"penstock": self.penstock},
        ) as context:
            return list(sensor.evaluate_tick(context).run_requests or [])

    def run(self, job: str, **options: Any) -> dg.ExecuteInProcessResult:
        return self.defs.resolve_job_def(
            f"penstock_{job.removeprefix('penstock_')}"
        ).execute_in_process(instance=self.instance, raise_on_error=False, **options)

    def land(self, request: Any) -> dg.ExecuteInProcessResult:
        return self.run(request.job_name, partition_key=request.partition_key, tags=request.tags)

    def newest(self) -> Window:
        window = WindowStore.of(self.penstock).newest(self.penstock.kafka.ref(self.name))
        assert window is not None
        return window

    def book(self) -> Book:
        window = self.newest()
        book = BookStore.of(self.penstock).newest_book(window.ref, window.sequence)
        assert book is not None
        return book

    def sql(self, text: str) -> None:
        tables = {"bronze": bronze_table(self.name), "silver": silver_table(self.name)}
        self.penstock.spark.session("").sql(text.format(**tables)).collect()


@pytest.fixture
def topic(penstock_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    # Components read the settings of the working directory: not those of a stack that ran here.
    monkeypatch.chdir(tmp_path)
    topic = Topic(penstock_settings)
    yield topic
    topic.penstock.spark.close()


def checks(result: dg.ExecuteInProcessResult) -> dict[str, bool]:
    return {e.check_name: e.passed for e in result.get_asset_check_evaluations()}


def test_from_the_sensor_to_the_sweep(topic: Topic) -> None:
    topic.produce([b'{"id": %d}' % n for n in range(40)] + [b"no JSON"])
    assert not topic.window_tick(), "the chain begins with the minute under way"
    topic.clock.advance(60)
    (request,) = topic.window_tick()
    landed = topic.land(request)
    assert landed.success
    assert checks(landed) == {str(e): True for e in Equation} | {"contract": False}
    book = topic.book()
    assert book.state is WindowState.BALANCED
    assert book.tiers == {
        "stored": 41, "landed": 41, "produced": 41, "parsed": 40, "quarantined": 1,
    }  # fmt: skip

    topic.sql("DELETE FROM {bronze} WHERE `partition` = 0 AND `offset` BETWEEN 3 AND 5")
    topic.sql("UPDATE {silver} SET id = 1000 WHERE _kafka_partition = 1 AND _kafka_offset = 7")
    assert topic.run("reverify").success
    found = topic.book().result(FIRST)
    assert found is not None
    assert found.state is WindowState.MISSING
    assert [r for f in found.findings for r in f.ranges] == [OffsetRange(0, 3, 6)]
    topic.clock.advance(240)
    assert topic.run("retention").success
    starts = {p: o.log_start for p, o in topic.penstock.kafka.offsets(topic.name).items()}
    assert starts == {0: 0, 1: 0}, "what is not proven is not deleted"

    assert topic.land(request).success
    assert topic.book().state is WindowState.BALANCED
    assert topic.run("retention").success
    starts = {p: o.log_start for p, o in topic.penstock.kafka.offsets(topic.name).items()}
    assert starts == {0: 21, 1: 20}

    # The log has nothing left of it: damage is healed from the proven snapshot.
    topic.sql("UPDATE {bronze} SET value = X'00' WHERE `partition` = 0 AND `offset` = 2")
    assert topic.run("reverify").success
    assert topic.book().state is WindowState.CORRUPT
    assert topic.land(request).success
    assert topic.book().state is WindowState.BALANCED


def test_transactions_leave_what_was_committed(
    penstock: Connections, desk: Callable[..., Any]
) -> None:
    topic = desk("ledger")
    spec = parse_topic({"metadata": {"name": topic.topic}, "land": {"window": "minutely"}})
    producer = Producer(
        {
            "bootstrap.servers": penstock.settings.bootstrap_servers,
            "transactional.id": f"tx-{topic.topic}",
        }
    )
    producer.init_transactions(60)

    def transaction(records: int, end: Callable[[float], None] | None) -> None:
        producer.begin_transaction()
        for _ in range(records):
            producer.produce(topic.topic, b"x", partition=0)
        assert producer.flush(60) == 0
        if end is not None:
            end(60)

    transaction(3, producer.commit_transaction)  # 0 to 2, the marker is 3
    transaction(1, producer.abort_transaction)  # 4, the marker is 5
    transaction(2, producer.commit_transaction)  # 6 and 7, the marker is 8
    transaction(2, None)  # 9 and 10, still open
    first = topic.freeze()
    assert first.ranges == (OffsetRange(0, 0, 9),), "up to the last stable offset"
    producer.commit_transaction(60)  # the marker is 11
    second = topic.freeze()
    assert second.ranges == (OffsetRange(0, 9, 12),)

    offsets = {}
    for window in (first, second):
        land_window(penstock, window)
        book = Bookkeeper(penstock).prove_landed(window, spec)
        found = book.result(FIRST)
        assert found is not None
        assert found.state is WindowState.BALANCED
        rows = penstock.lake.content(bronze_table(topic.topic), window.window_id).coverage
        offsets[window.sequence] = (rows.there(0).pairs(), found.legal)
    assert offsets == {
        0: ([(0, 3), (6, 8)], (OffsetRange(0, 3, 6), OffsetRange(0, 8, 9))),
        1: ([(9, 11)], (OffsetRange(0, 11, 12),)),
    }
