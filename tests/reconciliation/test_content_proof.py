"""Damage after landing is found whatever it is, on real tables: values swapped and updated, rows
forged in silver, rows removed from an old window, a data file deleted from S3."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest

from penstock_platform.archive.store import s3_client
from penstock_platform.connections import Connections
from penstock_platform.landing.attempt import land_window, parse_window
from penstock_platform.ranges import OffsetRange
from penstock_platform.reconciliation.books import Bookkeeper
from penstock_platform.reconciliation.model.books import Equation, WindowState
from penstock_platform.reconciliation.model.reverification import Pace
from penstock_platform.reconciliation.reverification import Looked, Reverifier
from penstock_platform.reconciliation.store import BookStore
from penstock_platform.topics.model.contract import load_contract
from penstock_platform.topics.model.declaration import (
    TopicSpec,
    bronze_table,
    parse_topic,
    quarantine_table,
    silver_table,
)
from penstock_platform.windows.model.window import Window

pytestmark = [pytest.mark.slow, pytest.mark.services, pytest.mark.xdist_group("lake")]

CONTRACT = json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}})
YEARS = timedelta(days=36_500)
FIRST, _, PARSED = Equation


class Shop:
    """A landed and parsed topic whose windows can be damaged and proven again."""

    def __init__(self, penstock: Connections, desk: Any) -> None:
        self.penstock = penstock
        self.desk = desk
        self.spec: TopicSpec = parse_topic(
            {
                "metadata": {"name": desk.topic},
                "spec": {"partitions": 1},
                "land": {"window": "minutely"},
                "schema": {"file": "s.json"},
            }
        )
        self.ref = penstock.kafka.ref(desk.topic)

    def window(self, records: int = 20) -> Window:
        """Produced, landed, parsed, proven."""
        self.desk.send_values([b'{"n": %d}' % n for n in range(records)])
        window: Window = self.desk.freeze()
        land_window(self.penstock, window)
        parse_window(self.penstock, window, load_contract(CONTRACT, "s.json"))
        books = Bookkeeper(self.penstock)
        books.prove_landed(window, self.spec)
        books.prove_parsed(window, self.spec)
        assert self.state(window, FIRST) is WindowState.BALANCED
        assert self.state(window, PARSED) is WindowState.BALANCED
        return window

    def sql(self, text: str) -> None:
        names = {
            "bronze": bronze_table(self.spec.name),
            "silver": silver_table(self.spec.name),
        }
        with self.penstock.spark.tagged("test", "") as spark:
            spark.sql(text.format(**names)).collect()

    def set_value(self, offset: int, number: int) -> None:
        value = json.dumps({"n": number}).encode().hex()
        self.sql(f"UPDATE {{bronze}} SET value = X'{value}' WHERE offset = {offset}")

    def look(self, recent: int = 1, older: int = 50, reads: int = 50) -> list[Looked]:
        pace = Pace(recent, older)
        return list(Reverifier(self.penstock, self.spec).look(self.ref, pace, YEARS, reads))

    def state(self, window: Window, equation: Equation) -> WindowState:
        return self.result(window, equation).state

    def result(self, window: Window, equation: Equation) -> Any:
        book = BookStore.of(self.penstock).newest_book(window.ref, window.sequence)
        assert book is not None
        return book.result(equation)

    def found(self, window: Window, equation: Equation = FIRST) -> dict[str, list[OffsetRange]]:
        return {f.kind: list(f.ranges) for f in self.result(window, equation).findings}


@pytest.fixture
def shop(penstock: Connections, desk: Callable[..., Any]) -> Callable[[str], Shop]:
    return lambda name: Shop(penstock, desk(name))


def at(window: Window, *places: tuple[int, int]) -> list[OffsetRange]:
    first = window.ranges[0].start
    return [OffsetRange(0, first + a, first + b) for a, b in places]


def test_changed_content_is_corrupt_with_its_offsets(shop: Callable[[str], Shop]) -> None:
    orders = shop("content")
    swapped, updated, forged, whole = (orders.window() for _ in range(4))
    assert all(one.proven and not one.judged for one in orders.look()), "nothing to be read"

    s, u = swapped.ranges[0].start, updated.ranges[0].start
    f = forged.ranges[0].start
    orders.set_value(s + 3, 5)
    orders.set_value(s + 5, 3)
    orders.set_value(u + 7, 99)
    orders.sql(f"UPDATE {{silver}} SET n = 1000 WHERE _kafka_offset = {f + 11}")

    looked = orders.look()
    assert {one.sequence for one in looked if one.judged} == {0, 1, 2}, "the whole one is not read"
    assert orders.state(swapped, FIRST) is WindowState.CORRUPT
    assert orders.found(swapped) == {"altered": at(swapped, (3, 4), (5, 6))}
    assert orders.found(updated) == {"altered": at(updated, (7, 8))}
    assert orders.state(forged, FIRST) is WindowState.BALANCED
    assert orders.state(forged, PARSED) is WindowState.CORRUPT
    assert orders.found(forged, PARSED) == {"altered": at(forged, (11, 12))}
    assert orders.state(whole, FIRST) is WindowState.BALANCED
    proof = BookStore.of(orders.penstock).newest_proof(orders.ref)
    assert proof.open == (0, 1, 2)
    assert proof.proven_at(3) > proof.proven_at(0)

    land_window(orders.penstock, swapped)
    parse_window(orders.penstock, swapped, load_contract(CONTRACT, "s.json"))
    assert {one.sequence for one in orders.look() if one.proven} == {0, 3}
    assert orders.state(swapped, FIRST) is WindowState.BALANCED


def test_rows_removed_from_an_old_window_are_found_on_the_round(
    shop: Callable[[str], Shop],
) -> None:
    orders = shop("round")
    windows = [orders.window(4) for _ in range(5)]
    hurt = windows[1]
    orders.sql(f"DELETE FROM {{bronze}} WHERE offset = {hurt.ranges[0].start + 2}")
    looked = [one.sequence for one in orders.look(recent=1, older=2)]
    assert looked == [4, 3, 2], "newest first"
    assert orders.state(hurt, FIRST) is WindowState.BALANCED
    assert [one.sequence for one in orders.look(recent=1, older=2)] == [4, 1, 0]
    assert orders.found(hurt) == {"missing": at(hurt, (2, 3))}
    assert 1 in [one.sequence for one in orders.look(recent=1, older=1)], "in scope until healed"


def test_a_deleted_data_file_is_named_and_stops_nothing_else(
    shop: Callable[[str], Shop],
) -> None:
    orders = shop("files")
    broken, hurt = orders.window(), orders.window()
    files = orders.penstock.lake.files(bronze_table(orders.spec.name), [broken.window_id])
    (task,) = files.by_window[broken.window_id]
    place = urlsplit(task.file.file_path)
    s3_client(orders.penstock.settings).delete_object(
        Bucket=place.netloc, Key=place.path.lstrip("/")
    )
    orders.sql(f"DELETE FROM {{bronze}} WHERE offset = {hurt.ranges[0].start}")
    looked = {one.sequence: one for one in orders.look(recent=10)}
    assert not looked[0].error
    assert orders.state(broken, FIRST) is WindowState.MISSING
    (finding,) = orders.result(broken, FIRST).findings
    assert finding.kind == "unreadable"
    assert finding.detail == f"{task.file.file_path} is not there"
    assert list(finding.ranges) == at(broken, (0, 20))
    assert orders.found(hurt) == {"missing": at(hurt, (0, 1))}


def test_a_window_that_its_run_still_parses_is_not_read_again(
    shop: Callable[[str], Shop],
) -> None:
    orders = shop("underway")
    orders.desk.send_values([b'{"n": 1}'] * 3)
    window = orders.desk.freeze()
    land_window(orders.penstock, window)
    Bookkeeper(orders.penstock).prove_landed(window, orders.spec)
    (looked,) = orders.look()
    assert not looked.judged, "bronze's files are those that were just proven"
    assert not looked.proven, "silver is still to come"
    assert BookStore.of(orders.penstock).newest_proof(orders.ref).open == (0,)
    orders.sql(f"DELETE FROM {{bronze}} WHERE offset = {window.ranges[0].start}")
    orders.look()
    assert orders.found(window) == {"missing": at(window, (0, 1))}


def test_a_malformed_book_is_an_error_of_its_window_alone(shop: Callable[[str], Shop]) -> None:
    orders = shop("malformed")
    odd, hurt = orders.window(), orders.window()
    orders.penstock.archive.create(
        f"clusters/{odd.cluster_id}/topics/{odd.topic}-{odd.topic_id}/books/0000000000/002.json",
        b"{",
    )
    orders.sql(f"DELETE FROM {{bronze}} WHERE offset = {hurt.ranges[0].start}")
    looked = {one.sequence: one for one in orders.look(recent=10)}
    assert "not a book" in looked[0].error
    assert orders.found(hurt) == {"missing": at(hurt, (0, 1))}


def test_changed_content_without_any_older_snapshot_is_narrowed_to_the_window(
    shop: Callable[[str], Shop],
) -> None:
    orders = shop("expired")
    window = orders.window()
    first = window.ranges[0].start
    orders.set_value(first + 7, 99)
    table = bronze_table(orders.spec.name)
    with orders.penstock.spark.tagged("test", "") as spark:
        spark.sql(
            f"CALL lake.system.expire_snapshots(table => '{table}', retain_last => 1, "
            "older_than => TIMESTAMP '2100-01-01 00:00:00')"
        ).collect()
    orders.look(recent=10)
    assert orders.state(window, FIRST) is WindowState.CORRUPT
    assert orders.found(window) == {"altered": at(window, (0, 20))}
    assert quarantine_table(orders.spec.name) not in str(orders.result(window, FIRST).findings)
