"""What a changed contract may do to the silver table of an earlier one, and what is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_platform.topics.model.contract import load_contract
from penstock_platform.topics.model.contract_changes import (
    ColumnChange,
    ContractChangeError,
    column_changes,
    ddl,
    left_columns,
    type_of_ddl,
    type_of_json,
)

TABLE = "lake.silver.orders"


def contract(**properties):
    text = json.dumps({"type": "object", "properties": properties}, indent=1)
    return load_contract(text, "orders.schema.json")


def of(**properties):
    """The columns of the table that such a contract has made."""
    return {c.name: type_of_ddl(c.type) for c in contract(**properties).columns}


def changes(present, **properties):
    return column_changes(TABLE, present, contract(**properties), "orders")


INT, BIGINT = {"type": "integer", "format": "int32"}, {"type": "integer"}
FLOAT, DOUBLE = {"type": "number", "format": "float"}, {"type": "number"}
TEXT = {"type": "string"}


def place(**fields):
    return {"type": "object", "properties": fields}


def listed(items):
    return {"type": "array", "items": items}


def test_the_same_contract_changes_nothing():
    same = {"a": BIGINT, "p": place(zip=INT), "l": listed(place(x=TEXT))}
    assert changes(of(**same), **same) == []


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"a": INT}, {"a": INT, "b": TEXT}, ("`b`", "string", True)),
        ({"a": INT}, {"a": BIGINT}, ("`a`", "bigint", False)),
        ({"a": FLOAT}, {"a": DOUBLE}, ("`a`", "double", False)),
        ({"p": place(zip=INT)}, {"p": place(zip=BIGINT)}, ("`p`.`zip`", "bigint", False)),
        ({"p": place(z=INT)}, {"p": place(z=INT, c=TEXT)}, ("`p`.`c`", "string", True)),
        ({"l": listed(INT)}, {"l": listed(BIGINT)}, ("`l`.element", "bigint", False)),
        (
            {"m": {"type": "object", "additionalProperties": INT}},
            {"m": {"type": "object", "additionalProperties": BIGINT}},
            ("`m`.value", "bigint", False),
        ),
        (
            {"l": listed(place(x=INT))},
            {"l": listed(place(x=INT, y=FLOAT))},
            ("`l`.element.`y`", "float", True),
        ),
    ],
)
def test_what_grows_is_made_by_altering_the_table(before, after, expected):
    assert changes(of(**before), **after) == [ColumnChange(*expected)]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (BIGINT, TEXT, "a is string now, and the table has bigint"),
        (TEXT, BIGINT, "a is bigint now, and the table has string"),
        (BIGINT, INT, "a is int now, and the table has bigint"),
        (DOUBLE, FLOAT, "a is float now, and the table has double"),
        (BIGINT, listed(BIGINT), "a is array<bigint> now, and the table has bigint"),
        (listed(BIGINT), listed(TEXT), "a.element is string now, and the table has bigint"),
        (place(z=BIGINT), place(z=TEXT), "a.z is string now, and the table has bigint"),
        (place(z=TEXT, y=TEXT), place(z=TEXT), "a.y is no longer declared"),
    ],
)
def test_what_changes_the_meaning_is_refused_with_line_and_ways_out(before, after, said):
    with pytest.raises(ContractChangeError) as caught:
        changes(of(first=TEXT, a=before), first=TEXT, a=after)
    sentence, ways = str(caught.value).splitlines()
    assert sentence.startswith("orders.schema.json:7: ")
    assert said in sentence
    assert "version: 2" in ways
    assert "penstock table remake orders" in ways


def test_every_difference_is_named_at_once():
    with pytest.raises(ContractChangeError) as caught:
        changes(of(a=TEXT, b=TEXT, c=TEXT), a=BIGINT, b=TEXT, c=BIGINT)
    assert len(str(caught.value).splitlines()) == 3


def test_a_column_that_is_no_longer_declared_stays():
    present = {"window_id": "string", **of(a=TEXT, b=TEXT)}
    assert changes(present, b=TEXT) == []
    assert left_columns(present, contract(b=TEXT)) == ["a"]


def test_names_differ_in_case_only_as_sql_has_it():
    assert changes(of(Name=TEXT), name=TEXT) == []


TYPES = st.recursive(
    st.sampled_from(["bigint", "string", "timestamp"]),
    lambda inner: st.one_of(
        st.tuples(st.just("array"), inner),
        st.tuples(st.just("map"), st.just("string"), inner),
        st.lists(st.tuples(st.text("a`:,<> ", min_size=1), inner), min_size=1, max_size=3).map(
            lambda fields: ("struct", tuple(fields))
        ),
    ),
    max_leaves=5,
)


@given(TYPES)
def test_a_type_is_read_as_it_is_written(kind):
    assert type_of_ddl(ddl(kind)) == kind


def test_sparks_own_names_are_understood():
    inner = {"type": "struct", "fields": [{"name": "x", "type": "integer", "nullable": True}]}
    value = {"type": "array", "elementType": inner, "containsNull": True}
    assert ddl(type_of_json(value)) == "array<struct<`x`:int>>"
    assert type_of_json("long") == "bigint"
