"""Spark and Python give every row of every contract type the same digest."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from penstock_platform.connections import Connections
from penstock_platform.lake.model.digests import digest_of, row_digests
from penstock_platform.lake.spark_digests import row_digest
from penstock_platform.landing.attempt import land_window, parse_window
from penstock_platform.topics.model.contract import load_contract
from penstock_platform.topics.model.declaration import bronze_table, quarantine_table, silver_table

pytestmark = [pytest.mark.services, pytest.mark.xdist_group("lake")]

INNER = {
    "type": "object",
    "properties": {
        "n": {"type": "integer"},
        "t": {"type": "array", "items": {"type": "string"}},
        "m": {"type": "object", "additionalProperties": {"type": "number"}},
    },
}
CONTRACT = {
    "type": "object",
    "properties": {
        "b": {"type": "boolean"},
        "i": {"type": "integer", "format": "int32"},
        "l": {"type": "integer"},
        "f": {"type": "number", "format": "float"},
        "d": {"type": "number"},
        "s": {"type": "string"},
        "day": {"type": "string", "format": "date"},
        "at": {"type": "string", "format": "date-time"},
        "Deep": {"type": "array", "items": INNER},
        "one": INNER,
        "lists": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        "maps": {"type": "object", "additionalProperties": INNER},
    },
}
INNERS = [{"n": 1, "t": ["ä", None, ""], "m": {"x": 0.1, "y": None}}, {"n": None}, {}]
ROWS: list[dict[str, Any]] = [
    {},
    {"b": True, "i": -1, "l": -(2**63), "f": 0.1, "d": -0.0, "s": "日本 🚰 e\u0301"},
    {"b": False, "i": 2**31 - 1, "l": 2**63 - 1, "f": -0.0, "d": 1e-320, "s": ""},
    {"day": "1969-12-31", "at": "1969-12-31T23:59:59.999999Z"},
    {"day": "2026-11-22", "at": "2026-11-22T01:02:03.000004+02:00", "d": 1.7976931348623157e308},
    {"Deep": [], "one": {}, "lists": [], "map": {}, "maps": {}},
    {"Deep": [*INNERS, None], "one": INNERS[0], "lists": [[1, None], None, [], [2] * 9]},
    {"map": {"ü": 1, "": None, "b": -5}, "maps": {"a": INNERS[0], "n": None, "e": {}}},
    {"l": "not a number"},
]


def test_every_contract_type_has_one_digest(
    penstock: Connections, desk: Callable[..., Any]
) -> None:
    topic = desk("digests", partitions=2)
    headers: list[list[tuple[str, bytes | None]]] = [
        [],
        [("h", None)],
        [("h", b""), ("ä", b"\xff")],
    ]
    topic.send(
        (n % 2, [None, b"", b"k\x00"][n % 3], json.dumps(row).encode(), headers[n % 3])
        for n, row in enumerate(ROWS * 3)
    )
    topic.send([(0, None, None, []), (1, b"", b"", [])])
    window = topic.freeze()
    landed = land_window(penstock, window)
    parsed = parse_window(penstock, window, load_contract(json.dumps(CONTRACT), "all.schema.json"))
    for table in (
        bronze_table(topic.topic),
        silver_table(topic.topic),
        quarantine_table(topic.topic),
    ):
        rows = penstock.lake.scan_table(table, window.window_id)
        assert rows.num_rows, table
        with penstock.spark.tagged("test", "") as spark:
            frame = spark.table(table)
            choices = [*([name] for name in frame.columns), frame.columns]
            digests = [
                row_digest(frame.select(*columns).schema).alias(str(number))
                for number, columns in enumerate(choices)
            ]
            jvm = frame.select(*digests).toArrow()
        for number, columns in enumerate(choices):
            there = sorted(digest % 2**64 for digest in jvm.column(number).to_pylist())
            here = sorted(row_digests(rows.select(columns)).tolist())
            assert here == there, (table, columns, rows.select(columns).to_pylist())
    for receipt in (landed.receipt, parsed.silver, parsed.quarantine):
        rows = penstock.lake.scan_table(receipt.table, window.window_id)
        assert rows.num_rows == receipt.rows
        assert digest_of([row_digests(rows)]) == receipt.digest, receipt.table
