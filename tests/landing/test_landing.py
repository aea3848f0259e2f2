"""Landing lands exactly the window, once, whatever is run again, at once, or after the broker
deleted it."""

from __future__ import annotations

import hashlib
import threading
import uuid
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import pytest
from pyspark.sql.connect.observation import Observation

from penstock_platform.connections import Connections
from penstock_platform.lake.spark_connect import SparkConnect
from penstock_platform.landing.attempt import RecreatedTopicError, land_window, report_progress
from penstock_platform.landing.bronze import LandingError, LandingJob, land_bronze
from penstock_platform.ranges import OffsetRange
from penstock_platform.reconciliation.model.equations import stored_equals_landed
from penstock_platform.reconciliation.store import BookStore
from penstock_platform.topics.model.declaration import bronze_table, consumer_group
from penstock_platform.windows.model.window import Window

pytestmark = [pytest.mark.services, pytest.mark.xdist_group("lake")]


def rows_sha(penstock: Connections, window: Window) -> str:
    """SHA-256 over every column of the window's rows, in order, read without Spark."""
    table = penstock.lake.scan_table(bronze_table(window.topic), window.window_id)
    rows = table.sort_by([("partition", "ascending"), ("offset", "ascending")]).to_pylist()
    return hashlib.sha256(repr(rows).encode()).hexdigest()


def balanced(penstock: Connections, window: Window) -> bool:
    landed = penstock.lake.content(bronze_table(window.topic), window.window_id)
    return stored_equals_landed(window, landed.coverage).balanced


def test_lands_exactly_the_window_in_full_fidelity(
    penstock: Connections, desk: Callable[..., Any]
) -> None:
    orders = desk("Orders.v1", partitions=3)
    orders.send((i % 2, b"k%d" % i, b"v%d" % i, [("h", b"x"), ("h", None)]) for i in range(100))
    orders.send([(0, None, None, []), (0, b"", b"", [("only", b"\x00\xff")])])
    window = orders.freeze()
    orders.send_values([b"later"] * 10)

    landed = land_window(penstock, window)

    assert landed.result.rows == landed.receipt.rows == 102 == window.record_count
    assert balanced(penstock, window)
    table = bronze_table(orders.topic)
    assert table.startswith("lake.bronze.orders_v1_")
    rows = penstock.lake.scan_table(table, window.window_id).to_pylist()
    assert {r["topic"] for r in rows} == {orders.topic}
    by_place = {(r["partition"], r["offset"]): r for r in rows}
    first = by_place[(0, 0)]
    assert (first["key"], first["value"], first["timestamp_type"]) == (b"k0", b"v0", 0)
    assert first["headers"] == [{"key": "h", "value": b"x"}, {"key": "h", "value": None}]
    assert first["timestamp"].tzinfo is not None
    assert by_place[(0, 50)]["key"] is None and by_place[(0, 50)]["value"] is None
    assert by_place[(0, 51)]["key"] == b"" and by_place[(0, 51)]["value"] == b""
    assert by_place[(0, 51)]["headers"] == [{"key": "only", "value": b"\x00\xff"}]
    assert penstock.kafka.group_offsets(consumer_group(orders.topic), orders.topic) == {
        p.p: p.end for p in window.partitions
    }
    assert landed.snapshot.summary["penstock.window-id"] == window.window_id
    assert landed.receipt.digest == landed.result.digest != "0" * 16


def test_a_second_run_leaves_the_same_rows_and_the_newest_receipt_counts(
    penstock: Connections, desk: Callable[..., Any]
) -> None:
    again = desk("again", partitions=2)
    again.send((i % 2, None, b"%d" % i, []) for i in range(1000))
    window = again.freeze()
    first = land_window(penstock, window)
    before = rows_sha(penstock, window)
    second = land_window(penstock, window)
    assert rows_sha(penstock, window) == before
    assert (first.result.digest, first.result.rows) == (second.result.digest, second.result.rows)
    table = bronze_table(again.topic)
    receipts = BookStore.of(penstock).receipts(window.ref, table, window.sequence)
    newest = penstock.lake.snapshots_with(table, window.window_id)[0]
    assert [r.attempt_id for r in receipts] == [first.receipt.attempt_id, second.receipt.attempt_id]
    assert newest.snapshot_id == receipts[1].snapshot_id


def test_other_windows_are_left_alone_and_empty_ones_work(
    penstock: Connections, desk: Callable[..., Any]
) -> None:
    quiet = desk("quiet", partitions=2)
    quiet.send_values([b"a", b"b"])
    full = quiet.freeze()
    empty = quiet.freeze()
    assert empty.record_count == 0
    land_window(penstock, full)
    before = rows_sha(penstock, full)
    for _ in range(2):
        landed = land_window(penstock, empty)
        assert (landed.receipt.rows, landed.receipt.digest) == (0, "0" * 16)
    table = bronze_table(quiet.topic)
    assert penstock.lake.row_count(table, empty.window_id) == 0
    newest = penstock.lake.snapshots_with(table, empty.window_id)[0]
    assert newest.snapshot_id == landed.receipt.snapshot_id
    assert rows_sha(penstock, full) == before
    of_full = penstock.lake.snapshots_with(table, full.window_id)[0]
    assert of_full.attempt_id != newest.attempt_id
    assert penstock.lake.window_ids(table) == [full.window_id]


def test_racing_landings_leave_one_copy(penstock: Connections, desk: Callable[..., Any]) -> None:
    raced = desk("raced", partitions=2)
    raced.send((i % 2, None, b"%d" % i, []) for i in range(5000))
    window = raced.freeze()
    land_window(penstock, window)
    before = rows_sha(penstock, window)
    together = threading.Barrier(3)
    tries: list[int] = []

    def land() -> None:
        spark = SparkConnect(penstock.settings)
        job = LandingJob(
            bootstrap_servers=penstock.settings.bootstrap_servers,
            attempt_id=uuid.uuid4().hex,
            # Every contender has taken its base when the first one writes.
            at=lambda step: together.wait(30) if step == "planned" and not waited() else None,
        )
        seen: list[int] = []

        def waited() -> bool:
            seen.append(1)
            return len(seen) > 1

        try:
            tries.append(land_bronze(spark.session(), window, job).tries)
        finally:
            spark.close()

    threads = [threading.Thread(target=land) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(tries) and len(tries) == 3, "every contender lands in the end"
    assert max(tries) > 1, "the fence refused no attempt: this was no race"
    assert rows_sha(penstock, window) == before


def test_a_busy_server_that_sends_no_figures_is_asked_again(
    penstock: Connections, desk: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark Connect leaves observed metrics out when its listener is late."""
    counted = desk("counted", partitions=2)
    counted.send((i % 2, b"k", b"%d" % i, []) for i in range(300))
    window = counted.freeze()
    observed = land_window(penstock, window).result
    monkeypatch.setattr(Observation, "get", property(lambda self: {}))
    counted_again = land_window(penstock, window).result
    figures = attrgetter("rows", "record_bytes", "digest")
    assert figures(counted_again) == figures(observed)
    assert counted_again.rows == 300


def test_what_the_broker_deleted_is_carried_over_from_the_lake(
    penstock: Connections, desk: Callable[..., Any]
) -> None:
    kept = desk("kept", partitions=2)
    kept.send((i % 2, None, b"%d" % i, []) for i in range(200))
    window = kept.freeze()
    land_window(penstock, window)
    before = rows_sha(penstock, window)
    penstock.kafka.delete_records(kept.topic, {0: 60, 1: 100})
    table = bronze_table(kept.topic)
    # Someone removes rows: some that the broker still has, some that only older snapshots have.
    penstock.spark.session().sql(
        f"DELETE FROM {table} WHERE offset IN (10, 11, 70) AND partition = 0"
    ).collect()
    assert not balanced(penstock, window)

    landed = land_window(penstock, window)

    assert landed.recovered == 160
    assert balanced(penstock, window)
    assert rows_sha(penstock, window) == before


def test_what_no_store_holds_any_more_is_missing_and_the_rest_is_landed(
    penstock: Connections, desk: Callable[..., Any]
) -> None:
    late = desk("late")
    late.send_values([b"%d" % i for i in range(100)])
    window = late.freeze()
    penstock.kafka.delete_records(late.topic, {0: 40})
    landed = land_window(penstock, window)
    assert (landed.result.rows, landed.recovered) == (60, 0)
    found = penstock.lake.content(bronze_table(late.topic), window.window_id).coverage
    assert (found.rows, found.ranges()) == (60, (OffsetRange(0, 40, 100),))


def test_offsets_that_vanish_unannounced_fail_the_landing_and_leave_the_table(
    penstock: Connections, desk: Callable[..., Any]
) -> None:
    gone = desk("gone")
    gone.send_values([b"%d" % i for i in range(100)])
    window = gone.freeze()
    penstock.kafka.delete_records(gone.topic, {0: 40})
    job = LandingJob(penstock.settings.bootstrap_servers, uuid.uuid4().hex)
    with pytest.raises(LandingError, match=r"was not landed in lake\.bronze\.gone"):
        land_bronze(penstock.spark.session(), window, job)
    assert penstock.lake.row_count(bronze_table(gone.topic)) == 0


def test_a_recreated_topic_is_refused(penstock: Connections, desk: Callable[..., Any]) -> None:
    old = desk("recreated")
    old.send_values([b"old"])
    window = old.freeze()
    penstock.kafka.delete(old.topic)
    penstock.kafka.create(old.topic, 1)
    with pytest.raises(RecreatedTopicError, match="other records"):
        land_window(penstock, window)


def test_group_offsets_never_go_back(penstock: Connections, desk: Callable[..., Any]) -> None:
    group = desk("progress")
    group.send_values([b"1"])
    first = group.freeze()
    group.send_values([b"2"])
    second = group.freeze()
    assert report_progress(penstock, second) and report_progress(penstock, first)
    offsets = penstock.kafka.group_offsets(consumer_group(group.topic), group.topic)
    assert offsets == {0: 2}
