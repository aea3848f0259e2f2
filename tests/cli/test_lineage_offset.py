"""`penstock lineage offset`: real tables on local files, the chain in memory; no Spark, no S3."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from lineage_lake import TOPIC, Shop, bronze_row

from penstock_platform.cli import lineage as command
from penstock_platform.cli.errors import described
from penstock_platform.ranges import OffsetRange
from penstock_platform.reconciliation.model.books import (
    Book,
    Equation,
    EquationResult,
    Finding,
    WindowState,
)
from penstock_platform.reconciliation.store import BookStore
from penstock_platform.topics.model.declaration import bronze_table, silver_table

Run = Callable[..., Result]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@pytest.fixture
def run(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(command, "Connections", lambda _settings: shop.penstock)
    monkeypatch.setattr(command, "settings", lambda: shop.penstock.settings)
    return lambda *arguments: CliRunner().invoke(
        command.command, list(map(str, arguments)), standalone_mode=False
    )


@pytest.fixture
def ask(run: Run) -> Callable[[int, int], dict[str, Any]]:
    def asked(partition: int, offset: int) -> dict[str, Any]:
        result = run("offset", TOPIC, partition, offset, "-o", "json")
        assert result.exception is None, result.exception
        document: dict[str, Any] = json.loads(result.stdout)
        return document

    return asked


def error_of(result: Result) -> str:
    assert result.exception is not None
    return str(described(result.exception))


def test_a_landed_offset_is_found_in_its_window_and_tables(shop: Shop, run: Run, ask: Any) -> None:
    shop.produce(10)
    shop.land_all(shop.freeze())
    shop.produce(5)
    window = shop.freeze()
    shop.land_all(window)
    document = ask(0, 13)
    assert (document["state"], document["reason"]) == ("frozen", "")
    assert document["log"] == {"state": "stored", "start": 0, "last_stable": 15, "end": 15}
    (found,) = document["windows"]
    assert (found["window"], found["sequence"], found["start"], found["end"]) == (
        window.window,
        1,
        10,
        15,
    )
    assert (found["state"], found["lost_from_log"], found["retired"]) == ("FROZEN", False, False)
    bronze, silver, quarantine = found["tables"]
    assert [t["tier"] for t in found["tables"]] == ["bronze", "silver", "quarantine"]
    assert [t["rows"] for t in found["tables"]] == [1, 0, 1]
    assert quarantine["reason"] == "total is missing"
    (receipt,) = bronze["receipts"]
    assert (receipt["attempt"], receipt["rows"]) == ("attempt-1", 5)
    assert receipt["landed_at"] == window.frozen_at
    assert receipt["snapshot"] == bronze["snapshot"]
    assert silver["receipts"][0]["rows"] == 3
    assert found["producer"]["incarnation"] == "4711"
    assert (found["producer"]["sequence"], found["producer"]["server"]) == (14, "till-3")
    assert [t["rows"] for t in ask(0, 12)["windows"][0]["tables"]] == [1, 1, 0]

    shown = run("offset", TOPIC, 0, 13).output
    assert "shop.orders, partition 0, offset 13: frozen" in shown
    assert "log: the log has it (offsets 0 to 14)" in shown
    assert f"window {window.window} (sequence 1, offsets 10 to 14" in shown
    assert "there: total is missing" in shown
    assert "sent by incarnation 4711 on till-3, sequence 14" in shown


def test_a_row_that_is_not_there_or_twice_there(shop: Shop, run: Run, ask: Any) -> None:
    """A topic without a contract has bronze alone."""
    shop.produce(4)
    window = shop.freeze()
    shop.land(window, [bronze_row(0, n) for n in (0, 1, 1, 3)])
    (table,) = ask(0, 2)["windows"][0]["tables"]
    assert (table["rows"], ask(0, 2)["windows"][0]["producer"]) == (0, None)
    assert ask(0, 1)["windows"][0]["tables"][0]["rows"] == 2
    assert "not there" in run("offset", TOPIC, 0, 2).output
    assert "there 2 times" in run("offset", TOPIC, 0, 1).output


def test_a_window_that_is_not_landed_yet(shop: Shop, run: Run, ask: Any) -> None:
    shop.produce(4)
    shop.freeze()
    (table,) = ask(0, 2)["windows"][0]["tables"]
    assert (table["receipts"], table["rows"], table["snapshot"]) == ([], 0, None)
    assert "not there" in run("offset", TOPIC, 0, 2).output


def test_a_data_file_that_is_gone_is_said(shop: Shop, run: Run, ask: Any, tmp_path: Path) -> None:
    shop.produce(4)
    shop.land(shop.freeze(), [bronze_row(0, n) for n in range(4)])
    for file in (tmp_path / "warehouse").rglob("*.parquet"):
        file.unlink()
    (table,) = ask(0, 2)["windows"][0]["tables"]
    assert table["rows"] is None
    assert table["problem"].startswith(f"a file of {bronze_table(TOPIC)} cannot be read: ")
    assert "not known: a file of" in run("offset", TOPIC, 0, 2).output


def test_offsets_that_are_in_no_window(shop: Shop, run: Run, ask: Any) -> None:
    assert ask(0, 0)["state"] == "no_chain"
    shop.produce(10)
    assert ask(0, 3)["state"] == "no_chain"
    shop.freeze(begin=6)
    shop.produce(2)
    before, waiting, beyond = ask(0, 5), ask(0, 10), ask(0, 12)
    assert [d["state"] for d in (before, waiting, beyond)] == [
        "before_chain",
        "not_frozen",
        "not_written",
    ]
    assert [d["windows"] for d in (before, waiting, beyond)] == [[], [], []]
    assert before["reason"].startswith("the chain begins at offset 6 of the partition")
    assert waiting["reason"] == "the chain ends at offset 10; a next window will hold it"
    assert beyond["log"]["state"] == "beyond_end"
    assert "not frozen yet" in run("offset", TOPIC, 0, 10).output
    assert ask(1, 0)["state"] == "not_written"
    assert "log: the log ends before it (empty)" in run("offset", TOPIC, 1, 0).output


def test_a_log_from_which_the_offset_was_deleted(shop: Shop, run: Run, ask: Any) -> None:
    shop.produce(10)
    shop.land_all(shop.freeze())
    shop.kafka.topics[TOPIC].partitions[0].log_start = 8
    document = ask(0, 7)
    assert (document["log"]["state"], document["log"]["start"]) == ("deleted", 8)
    assert not document["windows"][0]["lost_from_log"]
    assert ask(0, 8)["log"]["state"] == "stored"
    assert "log: deleted from the log (offsets 8 to 9)" in run("offset", TOPIC, 0, 7).output


def test_a_log_that_was_cut_and_grew_again(shop: Shop, run: Run, ask: Any) -> None:
    """The same offset names two records: one in each window."""
    shop.produce(10)
    first = shop.freeze()
    shop.land_all(first)
    shop.kafka.topics[TOPIC].partitions[0].truncate(4)
    only = ask(0, 7)
    assert [w["lost_from_log"] for w in only["windows"]] == [True]
    assert only["log"]["state"] == "beyond_end"

    shop.produce(5)
    waiting = ask(0, 7)
    assert waiting["reason"] == "the record that is at this offset now is in no window yet"

    second = shop.freeze()
    shop.land_all(second)
    both = ask(0, 7)
    assert [w["window"] for w in both["windows"]] == [first.window, second.window]
    assert [w["lost_from_log"] for w in both["windows"]] == [True, False]
    assert [w["tables"][0]["rows"] for w in both["windows"]] == [1, 1]
    assert [w["window"] for w in ask(0, 3)["windows"]] == [first.window]
    assert [w["lost_from_log"] for w in ask(0, 3)["windows"]] == [False]
    shown = run("offset", TOPIC, 0, 7).output
    assert "the log was cut and grew again" in shown
    assert shown.count("the log was cut below this offset after the window was frozen") == 1


def test_what_the_books_found_about_the_offset(shop: Shop, run: Run, ask: Any) -> None:
    shop.produce(4)
    window = shop.freeze()
    receipt = shop.land(window, [bronze_row(0, n) for n in (0, 3)])
    result = EquationResult(
        Equation.STORED_EQUALS_LANDED,
        WindowState.MISSING,
        expected=4,
        found=2,
        findings=(Finding("missing", (OffsetRange(0, 2, 3),), "4711", "not in bronze"),),
        landing=receipt.attempt_id,
        legal=(OffsetRange(0, 1, 2),),
    )
    book = Book.of(
        window, [result], made_at=window.frozen_at, code_version="test", landing=receipt.attempt_id
    )
    BookStore.of(shop.penstock).add_book(book)
    lost = ask(0, 2)["windows"][0]
    assert lost["state"] == "MISSING"
    assert lost["findings"] == [
        {
            "equation": "stored_equals_landed",
            "kind": "missing",
            "incarnation": "4711",
            "detail": "not in bronze",
        }
    ]
    assert ask(0, 3)["windows"][0]["findings"] == []
    marker = ask(0, 1)["windows"][0]
    assert (marker["holds_no_record"], lost["holds_no_record"]) == (True, False)
    assert "stored_equals_landed: missing not in bronze" in run("offset", TOPIC, 0, 2).output
    assert "no record: a transaction's marker" in run("offset", TOPIC, 0, 1).output


def test_a_newer_silver_table_is_asked_where_the_window_was_parsed_into_it(
    shop: Shop, ask: Any
) -> None:
    shop.produce(4)
    window = shop.freeze()
    shop.land_all(window)
    other = silver_table(TOPIC, 2)
    shop.catalog.create_table(
        other.removeprefix("lake."),
        shop.catalog.load_table(silver_table(TOPIC).removeprefix("lake.")).schema(),
    )
    names = [t["table"] for t in ask(0, 2)["windows"][0]["tables"]]
    assert names[1:] == ["lake.silver.shop_orders", "lake.quarantine.shop_orders"]


def test_what_does_not_exist(shop: Shop, run: Run) -> None:
    shop.produce(1)
    shop.freeze()
    assert "the cluster has no topic shop.order" in error_of(run("offset", "shop.order", 0, 0))
    said = error_of(run("offset", TOPIC, 2, 0))
    assert said == "topic shop.orders has no partition 2; its partitions are 0 to 1"
    assert "not in the range x>=0" in error_of(run("offset", TOPIC, 0, "--", -1))
    assert "is not a valid integer" in error_of(run("offset", TOPIC, 0, "newest"))
    assert "has no chain of windows of 'old'" in error_of(
        run("offset", TOPIC, 0, 0, "--incarnation", "old")
    )
    assert "belongs to one topic id" in error_of(run("offset", TOPIC, 0, 0, "--incarnation", "all"))


def test_an_offset_of_a_topic_that_was_recreated(shop: Shop, run: Run) -> None:
    shop.produce(3)
    old = shop.ref
    shop.windows.admit(old, shop.penstock.clock.now())
    shop.land_all(shop.freeze())
    shop.kafka.topics.pop(TOPIC)
    result = run("offset", TOPIC, 0, 2, "--incarnation", old.topic_id, "-o", "json")
    document = json.loads(result.stdout)
    assert (document["log"]["state"], document["topic_id"]) == ("gone", old.topic_id)
    assert document["windows"][0]["tables"][0]["rows"] == 1
    shown = run("offset", TOPIC, 0, 2, "--incarnation", old.topic_id).output
    assert "log: the broker has no topic of this id any more" in shown
