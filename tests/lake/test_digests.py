"""Rows' digests: against a plain reading of the definition, and what they distinguish."""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime

import pyarrow as pa
import pytest
import xxhash
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock_platform.lake.model.digests import (
    DigestError,
    digest_of,
    digest_of_halves,
    row_digests,
    tag_of,
)

NESTED = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])
SCHEMA = pa.schema(
    [
        ("t", pa.bool_()),
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("s", pa.string()),
        ("y", pa.large_binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("list", pa.list_(pa.int64())),
        ("deep", pa.list_(NESTED)),
        ("one", NESTED),
        ("lists", pa.list_(pa.list_(pa.int64()))),
        ("map", pa.map_(pa.string(), pa.float64())),
    ]
)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
NUMBERS = st.floats(allow_nan=False)


def maybe(strategy):
    return st.none() | strategy


STRUCTS = st.fixed_dictionaries(
    {"a": maybe(INT32), "b": maybe(st.lists(maybe(st.text(max_size=3)), max_size=3))}
)
ROWS = st.fixed_dictionaries(
    {
        "t": maybe(st.booleans()),
        "i": maybe(INT32),
        "l": maybe(INT64),
        "f": maybe(st.floats(allow_nan=False, width=32)),
        "d": maybe(NUMBERS),
        "s": maybe(st.text(max_size=40)),
        "y": maybe(st.binary(max_size=40)),
        "day": maybe(st.dates(date(1, 1, 2))),
        "at": maybe(st.datetimes(datetime(1, 1, 2)).map(lambda d: d.replace(tzinfo=UTC))),  # noqa: DTZ001
        "list": maybe(st.lists(maybe(INT64), max_size=4)),
        "deep": maybe(st.lists(maybe(STRUCTS), max_size=3)),
        "one": maybe(STRUCTS),
        "lists": maybe(st.lists(maybe(st.lists(INT64, max_size=2)), max_size=3)),
        "map": maybe(st.dictionaries(st.text(max_size=3), maybe(NUMBERS), max_size=3)),
    }
)


def plain(schema, row):
    """The definition, read aloud."""
    h = 42
    for field in sorted(schema, key=lambda f: f.name):
        h = tagged(h, field.name, field.type, row[field.name])
    return h


def tagged(h, name, kind, value):
    if value is None or (not value and (pa.types.is_list(kind) or pa.types.is_map(kind))):
        return h
    return chained(long(h, tag_of(name)), kind, value)


def chained(h, kind, value):
    is_a = pa.types
    if is_a.is_struct(kind):
        for field in kind:
            h = tagged(h, field.name, field.type, value[field.name])
        return h
    if is_a.is_map(kind):
        pairs = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
        items = [{"key": k, "value": v} for k, v in dict(value).items()]
        return chained(h, pa.list_(pairs), items)
    if is_a.is_list(kind):
        h = long(h, len(value))
        for x in value:
            h = long(h, 0 if x is None or x == [] else chained(42, kind.value_type, x))
        return h
    if is_a.is_boolean(kind):
        return xxhash.xxh64_intdigest(struct.pack("<i", value), h)
    if is_a.is_date32(kind):
        return xxhash.xxh64_intdigest(struct.pack("<i", (value - date(1970, 1, 1)).days), h)
    if is_a.is_timestamp(kind):
        since = value - datetime(1970, 1, 1, tzinfo=UTC)
        return long(h, (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds)
    if is_a.is_integer(kind):
        return long(h, value)
    if is_a.is_floating(kind):
        return xxhash.xxh64_intdigest(struct.pack("<d", value + 0.0), h)
    return xxhash.xxh64_intdigest(value.encode() if isinstance(value, str) else value, h)


def long(h, value):
    return xxhash.xxh64_intdigest((value % 2**64).to_bytes(8, "little"), h)


SLOW = settings(suppress_health_check=[HealthCheck.too_slow], max_examples=40, deadline=None)


@SLOW
@given(st.lists(ROWS, max_size=6))
def test_digests_are_what_the_definition_says(rows):
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    expected = [plain(SCHEMA, row) for row in rows]
    assert row_digests(table).tolist() == expected
    assert digest_of([row_digests(table)]) == f"{sum(expected) % 2**64:016x}"
    assert row_digests(table.slice(1)).tolist() == expected[1:]
    low, high = sum(d & 0xFFFFFFFF for d in expected), sum(d >> 32 for d in expected)
    assert digest_of_halves(low, high) == digest_of([row_digests(table)])


@SLOW
@given(st.lists(ROWS, min_size=2, max_size=6), st.randoms())
def test_neither_order_nor_columns_added_later_count(rows, random):
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    shuffled = random.sample(rows, len(rows))
    wider = pa.Table.from_pylist(shuffled, schema=SCHEMA).append_column(
        "z", pa.nulls(len(rows)).cast(pa.int64())
    )
    assert digest_of([row_digests(wider)]) == digest_of([row_digests(table)])


def one(**columns):
    return row_digests(pa.table({k: pa.array([v], t) for k, (v, t) in columns.items()}))[0]


TEXT, LONGS = pa.string(), pa.list_(pa.int64())


@pytest.mark.parametrize(
    "a,b",
    [
        ({"a": ("x", TEXT), "b": (None, TEXT)}, {"a": (None, TEXT), "b": ("x", TEXT)}),
        ({"a": ("", TEXT)}, {"a": (None, TEXT)}),
        ({"a": ([1, None], LONGS)}, {"a": ([None, 1], LONGS)}),
        ({"a": ([1], LONGS)}, {"a": ([1, None], LONGS)}),
        ({"a": ("ab", TEXT), "b": ("c", TEXT)}, {"a": ("a", TEXT), "b": ("bc", TEXT)}),
        ({"a": (1, pa.int64())}, {"b": (1, pa.int64())}),
    ],
)
def test_what_differs_has_another_digest(a, b):
    assert one(**a) != one(**b)


def test_a_swap_of_values_between_rows_is_seen():
    rows = [{"offset": 1, "value": "a"}, {"offset": 2, "value": "b"}]
    swapped = [{"offset": 1, "value": "b"}, {"offset": 2, "value": "a"}]
    one, other = (digest_of([row_digests(pa.Table.from_pylist(r))]) for r in (rows, swapped))
    assert one != other


def test_wider_numbers_of_the_same_value_have_the_same_digest():
    assert one(a=(7, pa.int32())) == one(a=(7, pa.int64()))
    assert one(a=(0.5, pa.float32())) == one(a=(0.5, pa.float64()))
    assert one(a=(-0.0, pa.float64())) == one(a=(0.0, pa.float64()))


def test_an_empty_array_or_map_counts_as_null():
    """pyiceberg reads a null one as an empty one."""
    for kind in (LONGS, pa.map_(TEXT, TEXT)):
        assert one(a=([], kind)) == one(a=(None, kind)) == 42


def test_a_type_without_a_digest_is_named():
    with pytest.raises(DigestError, match="column a has type decimal"):
        row_digests(pa.table({"a": pa.array([None], pa.decimal128(9, 2))}))
