"""The landing run of a window: what it proves, what it refuses, what it leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dagster as dg
import pytest

from penstock_platform.kafka.errors import ClusterError
from penstock_platform.landing.assets import BACKFILL
from penstock_platform.landing.results import has_result
from penstock_platform.ranges import OffsetRange, intersect
from penstock_platform.reconciliation.books import Bookkeeper
from penstock_platform.reconciliation.model.books import Equation, WindowState
from penstock_platform.topics.model.declaration import bronze_table, silver_table

STORED, PRODUCED, PARSED = (
    "stored_equals_landed",
    "produced_equals_stored",
    "parsed_plus_quarantined_equals_landed",
)


def check_results(result: dg.ExecuteInProcessResult) -> dict[str, dg.AssetCheckEvaluation]:
    return {e.check_name: e for e in result.get_asset_check_evaluations()}


def materialised(result: dg.ExecuteInProcessResult) -> dict[str, dg.AssetMaterialization]:
    found = [
        e.step_materialization_data.materialization
        for e in result.get_asset_materialization_events()
    ]
    return {m.asset_key.to_user_string(): m for m in found}


def test_a_frozen_window_lands_is_proven_and_has_its_book(ready: Any) -> None:
    window = ready.frozen(100)
    result = ready.land(window)

    assert result.success
    found = {name: (e.passed, e.partition) for name, e in check_results(result).items()}
    assert found.pop("contract") == (False, window.window)
    assert found == dict.fromkeys((STORED, PRODUCED, PARSED), (True, window.window))
    book = ready.penstock.books.newest_book(window.ref, window.sequence)
    assert book.state is WindowState.BALANCED
    assert book.tiers == {
        "stored": 100, "landed": 100, "produced": 100, "parsed": 99, "quarantined": 1,
    }  # fmt: skip
    found = materialised(result)
    assert set(found) == {"lake/bronze/shop_orders", "lake/silver/shop_orders", "books/shop.orders"}
    bronze = found["lake/bronze/shop_orders"]
    assert bronze.partition == window.window
    assert bronze.tags["dagster/data_version"] == window.sha256
    ranges = bronze.metadata["kafka/offset_ranges"].records  # type: ignore[union-attr]
    assert [(r.data["partition"], r.data["start"], r.data["end"]) for r in ranges] == [
        (0, 0, 100),
        (1, 0, 0),
    ]
    shown = {name: bronze.metadata[name].value for name in ("rows", "records", "dagster/uri")}
    assert shown == {
        "rows": 100,
        "records": 100,
        "dagster/uri": "s3://memory/lake.bronze.shop_orders",
    }


def test_landing_never_freezes(ready: Any) -> None:
    ready.produce(10)
    ready.pass_time(45)
    key = "2026-11-20-00:00"  # closed, and not frozen
    result = ready.run(ready.plan.landing_job, partition_key=key)
    assert not result.success
    said = failure_text(result)
    assert "window 2026-11-20-00:00 of shop.orders is not frozen: its chain is empty" in said
    assert ready.penstock.windows.newest(ready.ref) is None
    assert not ready.penstock.lake.rows


def failure_text(result: dg.ExecuteInProcessResult) -> str:
    return " ".join(
        str(e.step_failure_data.error) + str(e.step_failure_data.user_failure_data)
        for e in result.all_events
        if e.event_type is dg.DagsterEventType.STEP_FAILURE
    )


def test_a_missing_offset_blocks_what_follows_and_is_named(ready: Any) -> None:
    window = ready.frozen(100)
    ready.refuse_rows = lambda _w: {0: {7, 8, 41}}
    result = ready.land(window)

    assert not result.success
    stored = check_results(result)[STORED]
    assert not stored.passed
    assert stored.severity is dg.AssetCheckSeverity.ERROR
    assert "3 missing (partition 0 offsets 7-8, partition 0 offset" in (stored.description or "")
    rows = stored.metadata["findings"].records  # type: ignore[union-attr]
    assert [(r.data["first"], r.data["last"], r.data["records"]) for r in rows] == [
        (7, 8, 2),
        (41, 41, 1),
    ]
    assert stored.metadata["rerun"].value == f"penstock window rerun shop.orders {window.window}"
    assert (silver_table("shop.orders"), window.window_id) not in ready.penstock.lake.rows
    book = ready.penstock.books.newest_book(window.ref, window.sequence)
    assert book.state is WindowState.MISSING

    ready.refuse_rows = lambda _w: {}
    repaired = ready.land(window)
    assert repaired.success
    assert "rerun" not in check_results(repaired)[STORED].metadata, "there is nothing to repair"
    healed = ready.penstock.books.newest_book(window.ref, window.sequence)
    assert healed.state is WindowState.BALANCED


def test_as_many_lost_as_doubled_is_not_balanced(ready: Any) -> None:
    window = ready.landed(50)
    rows = [o for o in range(50) if o != 3] + [9]
    ready.penstock.lake.put(bronze_table("shop.orders"), window.window_id, {0: rows})
    key = dg.AssetCheckKey(ready.plan.bronze_key, STORED)
    job = ready.defs.resolve_job_def(ready.plan.landing_job)
    only_check = job.get_subset(asset_selection=set(), asset_check_selection={key})
    result = only_check.execute_in_process(
        instance=ready.instance, partition_key=window.window, raise_on_error=False
    )
    stored = check_results(result)[STORED]
    assert not stored.passed
    assert stored.metadata["state"].value == "MIXED"
    assert not result.get_asset_materialization_events()


def test_silver_refuses_a_window_that_is_not_proven(ready: Any) -> None:
    window = ready.frozen(20)
    job = ready.defs.resolve_job_def(ready.plan.landing_job)
    alone = job.get_subset(asset_selection={ready.plan.silver_key})
    result = alone.execute_in_process(
        instance=ready.instance, partition_key=window.window, raise_on_error=False
    )
    assert not result.success
    assert "its landing is not proven" in failure_text(result)
    assert not ready.penstock.lake.rows


def test_silver_refuses_a_window_whose_rows_vanished_since(ready: Any) -> None:
    window = ready.landed(20)
    ready.penstock.lake.put(bronze_table("shop.orders"), window.window_id, {0: range(5, 20)})
    ready.run("reverify")
    job = ready.defs.resolve_job_def(ready.plan.landing_job)
    alone = job.get_subset(asset_selection={ready.plan.silver_key})
    result = alone.execute_in_process(
        instance=ready.instance, partition_key=window.window, raise_on_error=False
    )
    assert not result.success
    assert "is MISSING: its landing is not proven, so it is not parsed. Run: penstock window " in (
        failure_text(result)
    )


def test_records_deleted_from_the_log_are_distinguished_from_those_a_rerun_restores(
    ready: Any,
) -> None:
    window = ready.frozen(100)
    ready.penstock.kafka.delete_records(ready.topic, {0: 40})
    ready.refuse_rows = lambda _w: {0: {10, 11, 60}}
    stored = check_results(ready.land(window))[STORED]
    rows = stored.metadata["findings"].records  # type: ignore[union-attr]
    assert {(r.data["kind"], r.data["first"], r.data["last"]) for r in rows} == {
        ("retained_away", 10, 11),
        ("missing", 60, 60),
    }


def test_evidence_that_is_due_warns_and_is_checked_later_without_a_landing(ready: Any) -> None:
    sent = ready.produce(30)
    ready.pass_time(60)
    ready.tick("window_sensor")
    window = ready.newest()
    result = ready.land(window)
    produced = check_results(result)[PRODUCED]
    assert (produced.passed, produced.severity) == (True, dg.AssetCheckSeverity.WARN)
    assert produced.metadata["state"].value == "PENDING"

    ready.claim(sent)
    key = dg.AssetCheckKey(ready.plan.books_key, PRODUCED)
    job = ready.defs.resolve_job_def(ready.plan.evidence_job)
    again = job.get_subset(asset_selection=set(), asset_check_selection={key})
    result = again.execute_in_process(instance=ready.instance, partition_key=window.window)
    assert check_results(result)[PRODUCED].metadata["state"].value == "BALANCED"
    assert not result.get_asset_materialization_events()
    book = ready.penstock.books.newest_book(window.ref, window.sequence)
    assert book.state is WindowState.BALANCED


def test_evidence_that_never_comes_is_unaudited_after_the_grace(ready: Any) -> None:
    ready.produce(30)
    ready.pass_time(60)
    ready.tick("window_sensor")
    ready.pass_time(90)
    produced = check_results(ready.land(ready.newest()))[PRODUCED]
    assert not produced.passed
    assert "30 incarnation silent (partition 0 offsets 0-29)" in (produced.description or "")


def test_a_person_may_accept_what_was_found(ready: Any) -> None:
    ready.produce(5)
    ready.pass_time(60)
    ready.tick("window_sensor")
    ready.pass_time(90)
    window = ready.newest()
    ready.land(window)
    ready.penstock.books.accept(window, "ann", "the load test", ready.penstock.clock.now())
    produced = check_results(ready.land(window))[PRODUCED]
    assert produced.passed
    assert (produced.description or "").startswith("ACCEPTED by a person")
    book = ready.penstock.books.newest_book(window.ref, window.sequence)
    assert book.state is WindowState.ACCEPTED
    assert book.result(Equation.PRODUCED_EQUALS_STORED).state is WindowState.UNAUDITED


def test_the_second_run_gives_the_same(ready: Any) -> None:
    window = ready.landed(40)
    before = dict(ready.penstock.lake.rows)
    assert ready.land(window).success
    after = ready.penstock.lake.rows
    assert {k: {p: o.tolist() for p, o in v.items()} for k, v in before.items()} == {
        k: {p: o.tolist() for p, o in v.items()} for k, v in after.items()
    }


def test_a_backfill_runs_one_window_a_run(ready: Any) -> None:
    """A run over several partitions would record its checks without one (Dagster 1.13)."""
    assert dg.BackfillPolicy.multi_run(1) == BACKFILL
    for key in ready.plan.landing_keys:
        assert ready.defs.resolve_asset_graph().get(key).backfill_policy == BACKFILL


@pytest.mark.parametrize("severity", ["WARN", "ERROR"])
def test_the_declaration_weighs_missing_evidence(stage: Callable[..., Any], severity: str) -> None:
    made = stage(audit={"grace": "1s", "severity": severity})
    made.freeze_without_evidence()
    result = made.land(made.newest())
    assert check_results(result)[PRODUCED].severity.value == severity
    assert result.success, "missing evidence never blocks a landing"


class Markers:
    """A broker that knows which offsets are control batches, while it answers."""

    def __init__(self, *legal: OffsetRange) -> None:
        self.legal, self.answers, self.asked = legal, True, 0

    def __call__(self, _topic: str, ranges: Any) -> tuple[OffsetRange, ...]:
        self.asked += 1
        if not self.answers:
            raise ClusterError("no Kafka broker answers at nowhere:1")
        return intersect(self.legal, ranges)


def test_legal_holes_are_known_from_the_book_after_the_log_deleted_them(ready: Any) -> None:
    markers = Markers(OffsetRange(0, 3, 5))
    ready.penstock.kafka.unread_offsets = markers
    ready.refuse_rows = lambda _w: {0: {3, 4}}
    window = ready.landed(20)
    book = ready.penstock.books.newest_book(window.ref, window.sequence)
    result = book.judged(Equation.STORED_EQUALS_LANDED)
    assert (result.state, result.legal) == (WindowState.BALANCED, (OffsetRange(0, 3, 5),))
    assert markers.asked == 1
    markers.answers = False
    ready.penstock.kafka.delete_records(ready.topic, {0: 20})
    book = Bookkeeper(ready.penstock).prove_landed(window, ready.plan.spec)
    assert book.judged(Equation.STORED_EQUALS_LANDED).balanced
    assert markers.asked == 1, "what is known is not asked again"


def test_holes_are_pending_until_the_log_answers_and_the_landing_is_asked_for_again(
    ready: Any,
) -> None:
    markers = Markers(OffsetRange(0, 3, 5))
    markers.answers = False
    ready.penstock.kafka.unread_offsets = markers
    ready.refuse_rows = lambda _w: {0: {3, 4}}
    window = ready.frozen(20)
    ready.land(window)
    book = ready.penstock.books.newest_book(window.ref, window.sequence)
    result = book.judged(Equation.STORED_EQUALS_LANDED)
    assert result.state is WindowState.PENDING
    assert "no Kafka broker answers" in result.findings[0].detail
    assert not has_result(ready.plan, book), "so that the sensor asks for it again"
    markers.answers = True
    assert ready.land(window).success
    book = ready.penstock.books.newest_book(window.ref, window.sequence)
    assert book.judged(Equation.STORED_EQUALS_LANDED).balanced
