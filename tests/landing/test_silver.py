"""Silver and quarantine together are what was landed, whatever the values are."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from typing import Any

import pytest

from penstock_platform.connections import Connections
from penstock_platform.landing.attempt import LostLandingError, land_window, parse_window
from penstock_platform.reconciliation.model.equations import parsed_plus_quarantined_equals_landed
from penstock_platform.reconciliation.store import BookStore
from penstock_platform.topics.model.contract import load_contract
from penstock_platform.topics.model.declaration import bronze_table, quarantine_table, silver_table
from penstock_platform.windows.model.window import Window

pytestmark = [pytest.mark.services, pytest.mark.xdist_group("lake")]

SCHEMA: dict[str, Any] = {
    "type": "object",
    "title": "nasty",
    "properties": {
        "id": {"type": "integer", "minimum": 0},
        "name": {"type": "string", "maxLength": 12},
        "price": {"type": ["number", "null"]},
        "paid": {"type": "boolean"},
        "at": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "small": {"type": "integer", "format": "int32"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "sizes": {"type": "array", "items": {"type": "integer"}},
        "place": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "zip": {"type": "integer"}},
        },
        "color": {"type": "string", "enum": ["red", "it's"]},
    },
    "required": ["id", "name"],
}
GOOD: list[tuple[bytes, dict[str, Any]]] = [
    (b'{"id":1,"name":"a"}', {"id": 1, "name": "a", "price": None, "tags": None}),
    (b' {"name" : "b", "id":2} \n', {"id": 2, "name": "b"}),
    (b'{"id":3,"name":"5"}', {"name": "5"}),
    (b'{"id":4,"name":"true"}', {"name": "true"}),
    (b'{"id":5,"name":"{}"}', {"name": "{}"}),
    (b'{"id":6,"name":"-1e5"}', {"name": "-1e5"}),
    (b'{"id":7,"name":"a","price":1}', {"price": 1.0}),
    (b'{"id":8,"name":"a","price":-2.5e3}', {"price": -2500.0}),
    (b'{"id":9,"name":"a","price":null,"paid":null}', {"price": None, "paid": None}),
    (b'{"id":10,"name":"a","paid":true,"more":{"x":[1]}}', {"paid": True}),
    (
        b'{"id":11,"name":"a","at":"2026-11-20T12:00:00.5+01:00"}',
        {"at": dt.datetime(2026, 11, 20, 11, 0, 0, 500000, tzinfo=dt.UTC)},
    ),
    (
        b'{"id":12,"name":"a","at":"2026-11-20T12:00:00","day":"2026-02-28"}',
        {"at": dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC), "day": dt.date(2026, 2, 28)},
    ),
    (b'{"id":13,"name":"a","tags":[],"sizes":[1,2,null]}', {"tags": [], "sizes": [1, 2, None]}),
    (b'{"id":14,"name":"a","tags":["1","x"]}', {"tags": ["1", "x"]}),
    (
        b'{"id":15,"name":"a","place":{"city":"Ulm","zip":89073,"more":1}}',
        {"place": {"city": "Ulm", "zip": 89073}},
    ),
    ('{"id":16,"name":"größe ✓"}'.encode(), {"name": "größe ✓"}),
    (b'{"id":9223372036854775807,"name":"a"}', {"id": 9223372036854775807}),
    (b'{"id":18,"name":"","color":"it\'s"}', {"name": "", "color": "it's"}),
]
BAD: list[tuple[bytes | None, str]] = [
    (None, "value is null"),
    (b"", "value is not JSON"),
    (b"   ", "value is not JSON"),
    (b"garbage", "value is not JSON"),
    (b'{"id":1,"name":"a"', "value is not JSON"),
    (b'{"id":1,"name":"a"} x', "one JSON object"),
    (b'{"id":1,"name":"a"}{"id":2,"name":"b"}', "one JSON object"),
    (b'{"id":1,"name":"a"},{"id":2,"name":"b"}', "one JSON object"),
    (b'{"id":1,"name":"a"}]', "one JSON object"),
    (b'{"id":1,"name":"a"}]}', "one JSON object"),
    (b'{"id":1,"name":"a"}],"a":[{"id":1,"name":"a"}', "one JSON object"),
    (b"null", "not an object but void"),
    (b"5", "not an object but bigint"),
    (b'"text"', "not an object but string"),
    (b'[{"id":1,"name":"a"}]', "not an object but array"),
    (b"{'id':1,'name':'a'}", "value is not JSON"),
    (b'{"id":NaN,"name":"a"}', "value is not JSON"),
    (b'\xef\xbb\xbf{"id":1,"name":"a"}', "value is not JSON"),
    (b'{"id":1,"name":"\xff\xfe"}', "not UTF-8"),
    (b"\x00\x01\x02", "value is not JSON"),
    (b"{}", "id is missing"),
    (b'{"id":1}', "name is missing"),
    (b'{"ID":1,"name":"a"}', "id is missing"),
    (b'{"id":null,"name":"a"}', "id is missing"),
    (b'{"id":"1","name":"a"}', "id is not bigint but string"),
    (b'{"id":1.5,"name":"a"}', "id is not bigint but decimal"),
    (b'{"id":true,"name":"a"}', "id is not bigint but boolean"),
    (b'{"id":9223372036854775808,"name":"a"}', "id is not bigint but decimal"),
    (b'{"id":-1,"name":"a"}', "id is below 0"),
    (b'{"id":1,"name":5}', "name is not string but bigint"),
    (b'{"id":1,"name":5.5}', "name is not string but decimal"),
    (b'{"id":1,"name":true}', "name is not string but boolean"),
    (b'{"id":1,"name":{"a":1}}', "name is not string but object"),
    (b'{"id":1,"name":["a"]}', "name is not string but array"),
    (b'{"id":1,"name":"much too long a name"}', "name is longer than 12"),
    (b'{"id":1,"name":"a","price":"1"}', "price is not double but string"),
    (b'{"id":1,"name":"a","price":"NaN"}', "price is not double but string"),
    (b'{"id":1,"name":"a","price":1e999}', "price is out of range"),
    (b'{"id":1,"name":"a","paid":"true"}', "paid is not boolean but string"),
    (b'{"id":1,"name":"a","paid":1}', "paid is not boolean but bigint"),
    (b'{"id":1,"name":"a","at":1363000000}', "at is not a"),
    (b'{"id":1,"name":"a","at":"12:00"}', "at is not a time"),
    (b'{"id":1,"name":"a","at":"2026-02-30T00:00:00Z"}', "at is not a time"),
    (b'{"id":1,"name":"a","day":"2026-1-1"}', "day is not a date"),
    (b'{"id":1,"name":"a","small":3000000000}', "small is not int"),
    (b'{"id":1,"name":"a","tags":"x"}', "tags is not array<string>"),
    (b'{"id":1,"name":"a","tags":[1]}', "tags is not array<string>"),
    (b'{"id":1,"name":"a","tags":["x",1]}', "tags is not array<string>"),
    (b'{"id":1,"name":"a","sizes":["1"]}', "sizes is not array<bigint>"),
    (b'{"id":1,"name":"a","place":[]}', "place is not struct"),
    (b'{"id":1,"name":"a","place":{"zip":"x"}}', "place is not struct"),
    (b'{"id":1,"name":"a","color":"blue"}', "color is not one of its values"),
    (b'{"id":1,"name":"a","deep":' + b"[" * 3000 + b"]" * 3000 + b"}", "value is not JSON"),
]


@pytest.fixture(scope="module")
def contract() -> Any:
    return load_contract(json.dumps(SCHEMA), "nasty.schema.json")


def equation(penstock: Connections, window: Window) -> Any:
    bronze, silver, quarantine = (
        penstock.lake.content(name(window.topic), window.window_id).coverage
        for name in (bronze_table, silver_table, quarantine_table)
    )
    return parsed_plus_quarantined_equals_landed(bronze, silver, quarantine)


def test_every_record_is_parsed_or_quarantined_with_its_reason(
    penstock: Connections, desk: Callable[..., Any], contract: Any
) -> None:
    nasty = desk("nasty", partitions=2)
    nasty.send_values([value for value, _ in GOOD], partition=0)
    nasty.send_values([value for value, _ in BAD], partition=1)
    window = nasty.freeze()
    land_window(penstock, window)

    parsed = parse_window(penstock, window, contract)

    reasons = penstock.lake.scan_table(quarantine_table(nasty.topic), window.window_id).to_pylist()
    found = {(r["partition"], r["offset"]): (r["value"], r["reason"]) for r in reasons}
    wrongly = {value: found[0, i] for i, (value, _) in enumerate(GOOD) if (0, i) in found}
    assert not wrongly, wrongly
    missed = [value for i, (value, _) in enumerate(BAD) if (1, i) not in found]
    assert not missed, missed
    other = [
        (value, why, found[1, i])
        for i, (value, why) in enumerate(BAD)
        if why not in found[1, i][1] or found[1, i][0] != value
    ]
    assert not other, other
    rows = penstock.lake.scan_table(silver_table(nasty.topic), window.window_id).to_pylist()
    by_offset = {row["_kafka_offset"]: row for row in rows}
    for offset, (value, expected) in enumerate(GOOD):
        got = {name: by_offset[offset][name] for name in expected}
        assert got == expected, value
    assert equation(penstock, window).balanced
    assert (parsed.result.parsed, parsed.result.quarantined) == (len(GOOD), len(BAD))
    assert (parsed.silver.rows, parsed.quarantine.rows) == (len(GOOD), len(BAD))


def test_parsing_again_gives_the_same_and_clean_windows_have_an_empty_quarantine(
    penstock: Connections, desk: Callable[..., Any], contract: Any
) -> None:
    clean = desk("clean")
    clean.send_values([b'{"id":%d,"name":"n"}' % i for i in range(500)])
    window = clean.freeze()
    with pytest.raises(LostLandingError, match="land it first"):
        parse_window(penstock, window, contract)
    land_window(penstock, window)
    parse_window(penstock, window, contract)
    again = parse_window(penstock, window, contract)
    assert (again.result.landed, again.result.parsed, again.result.quarantined) == (500, 500, 0)
    assert equation(penstock, window).balanced
    assert again.quarantine.digest == "0" * 16 != again.silver.digest
    for receipt in (again.silver, again.quarantine):
        newest = penstock.lake.snapshots_with(receipt.table, window.window_id)[0]
        receipts = BookStore.of(penstock).receipts(window.ref, receipt.table, window.sequence)
        assert receipts[-1] == receipt and newest.snapshot_id == receipt.snapshot_id


def test_a_contract_that_grew_gives_the_table_its_new_column(
    penstock: Connections, desk: Callable[..., Any]
) -> None:
    grown = desk("grown")
    first = {"type": "object", "properties": {"a": {"type": "integer"}}}
    more = {"type": "object", "properties": {**first["properties"], "b": {"type": "string"}}}
    grown.send_values([b'{"a":1,"b":"x"}'])
    window = grown.freeze()
    land_window(penstock, window)
    for schema in (first, more):
        parse_window(penstock, window, load_contract(json.dumps(schema), "grown.json"))
    rows = penstock.lake.scan_table(silver_table(grown.topic), window.window_id).to_pylist()
    assert [(row["a"], row["b"]) for row in rows] == [(1, "x")]
    assert ("b", "string") in penstock.lake.columns(silver_table(grown.topic))


def test_an_empty_window_parses_to_nothing(
    penstock: Connections, desk: Callable[..., Any], contract: Any
) -> None:
    empty = desk("nothing")
    window = empty.freeze()
    land_window(penstock, window)
    parsed = parse_window(penstock, window, contract)
    assert (parsed.silver.rows, parsed.quarantine.rows) == (0, 0)
    assert parsed.silver.digest == parsed.quarantine.digest == "0" * 16
