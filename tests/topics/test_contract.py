"""Contracts: the columns a JSON Schema makes, and what is refused rather than passed over."""

from __future__ import annotations

import json

import pytest

from penstock_platform.topics.model.contract import ContractError, load_contract

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Flight",
    "type": "object",
    "required": ["carrier", "year", "note"],
    "properties": {
        "carrier": {"type": "string", "enum": ["AA", "o'k"], "description": "The airline"},
        "year": {"type": "integer", "minimum": 1900, "exclusiveMaximum": 3000},
        "month": {"type": "integer", "format": "int32"},
        "delay": {"type": ["number", "null"]},
        "note": {"type": ["string", "null"], "maxLength": 9, "pattern": "^\\d"},
        "at": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "ok": {"type": "boolean", "const": True},
        "tags": {"type": "array", "items": {"type": "string"}},
        "where": {"type": "object", "properties": {"lat": {"type": "number", "format": "float"}}},
        "more": {"type": "object", "additionalProperties": {"type": "integer"}},
    },
}


def test_properties_become_columns_of_both_worlds():
    contract = load_contract(json.dumps(SCHEMA), "flights.schema.json")
    assert contract.title == "Flight"
    found = {c.name: (c.type, c.iceberg_type, c.nullable) for c in contract.columns}
    assert found == {
        "carrier": ("string", "string", False),
        "year": ("bigint", "long", False),
        "month": ("int", "int", True),
        "delay": ("double", "double", True),
        "note": ("string", "string", True),
        "at": ("timestamp", "timestamptz", True),
        "day": ("date", "date", True),
        "ok": ("boolean", "boolean", True),
        "tags": ("array<string>", "list<string>", True),
        "where": ("struct<`lat`:float>", "struct<lat:float>", True),
        "more": ("map<string,bigint>", "map<string,long>", True),
    }
    assert contract.columns[0].comment == "The airline"
    assert contract.silver_columns[:5] == (
        ("window_id", "string"),
        ("_kafka_partition", "int"),
        ("_kafka_offset", "bigint"),
        ("_kafka_timestamp", "timestamp"),
        ("carrier", "string"),
    )


def test_rules_are_conditions_with_reasons():
    rules = load_contract(json.dumps(SCHEMA), "f").rules
    assert [(r.condition, r.reason) for r in rules] == [
        ("`carrier` IS NOT NULL", "carrier is missing"),
        ("`carrier` IS NULL OR `carrier` IN ('AA', 'o\\'k')", "carrier is not one of its values"),
        ("`year` IS NOT NULL", "year is missing"),
        ("`year` IS NULL OR `year` >= 1900", "year is below 1900"),
        ("`year` IS NULL OR `year` < 3000", "year is not below 3000"),
        ("`note` IS NULL OR char_length(`note`) <= 9", "note is longer than 9"),
        ("`note` IS NULL OR `note` RLIKE '^\\\\d'", "note does not match its pattern"),
        ("`ok` IS NULL OR `ok` = true", "ok is not its constant"),
    ]


RULES = [
    ('"type": "integer", "minimum": 3', "`v` >= 3", "v is below 3"),
    ('"type": "integer", "maximum": 3', "`v` <= 3", "v is above 3"),
    ('"type": "integer", "exclusiveMinimum": 3', "`v` > 3", "v is not above 3"),
    ('"type": "integer", "exclusiveMaximum": 3', "`v` < 3", "v is not below 3"),
    ('"type": "number", "maximum": 2.5', "`v` <= 2.5D", "v is above 2.5"),
    ('"type": "string", "minLength": 2', "char_length(`v`) >= 2", "v is shorter than 2"),
    ('"type": "string", "maxLength": 2', "char_length(`v`) <= 2", "v is longer than 2"),
    ('"type": "string", "pattern": "^a"', "`v` RLIKE '^a'", "v does not match its pattern"),
    ('"type": "string", "enum": ["a"]', "`v` IN ('a')", "v is not one of its values"),
    (
        '"type": ["string", "null"], "enum": ["a", null, "b"]',
        "`v` IN ('a', 'b')",
        "v is not one of its values",
    ),
    ('"type": ["string", "null"], "enum": [null]', "false", "v is not one of its values"),
    ('"type": "integer", "const": 7', "`v` = 7", "v is not its constant"),
]


@pytest.mark.parametrize(("schema", "condition", "reason"), RULES, ids=[r[0] for r in RULES])
def test_each_rule_has_its_own_condition(schema: str, condition: str, reason: str) -> None:
    (rule,) = load_contract(contract_with(f'"v": {{{schema}}}'), "f").rules
    assert rule.condition == f"`v` IS NULL OR {condition}"
    assert rule.reason == reason


RESERVED = (
    "window_id Window_ID _KAFKA_OFFSET _kafka_Partition _Kafka_timestamp _partition _FILE _Pos "
    "_deleted _SPEC_id _Row_Id _LAST_updated_sequence_number"
)


@pytest.mark.parametrize("name", RESERVED.split())
def test_reserved_names_are_refused_in_any_case(name: str) -> None:
    text = contract_with(f'"ok": {{"type": "string"}},\n"{name}": {{"type": "string"}}')
    with pytest.raises(ContractError) as error:
        load_contract(text, "f.json")
    (line,) = str(error.value).splitlines()
    assert line.startswith(f"f.json:4: properties.{name}: {name} is a ")
    assert line.endswith("; rename it")


def contract_with(properties: str) -> str:
    return '{"type": "object",\n "properties": {\n' + properties + "}}"


@pytest.mark.parametrize(
    "text,message",
    [
        ("{", "f.json:1: not JSON"),
        ("[]", '"type": "object"'),
        (contract_with(""), "at least one property"),
        (contract_with('"a": {}'), "f.json:3: properties.a: give one type"),
        (contract_with('"a": {"type": ["string", "integer"]}'), 'one and "null"'),
        (contract_with('"a": {"type": "strin"}'), "f.json:3: properties.a.type: not a JSON Schema"),
        (contract_with('"a": {"type": "string", "oneOf": [{}]}'), "oneOf is not supported"),
        (contract_with('\n"a b": {"type": "string"}'), "f.json:4: properties.a b: a column's name"),
        (contract_with('"_kafka_offset": {"type": "string"}'), "column of every silver table"),
        (contract_with('"a": {"type": "string"}, "A": {"type": "string"}'), "only in case"),
        (contract_with('"a": {"type": "array"}'), "a property needs a type"),
        (contract_with('"a": {"type": "object"}'), "an object needs properties"),
        (
            contract_with('"a": {"type": "array", "items": {"type": "integer", "minimum": 1}}'),
            "minimum is checked only on the contract's own properties",
        ),
        (
            contract_with('"a": {"type": "string", "format": "date", "minLength": 1}'),
            "minLength does not apply to a date",
        ),
        (
            '{"type": "object", "required": ["b"], "properties": {"a": {"type": "string"}}}',
            "b is required and not among the properties",
        ),
        (
            '{"type": "object", "additionalProperties": false, '
            '"properties": {"a": {"type": "string"}}}',
            "further keys are ignored",
        ),
    ],
)
def test_what_cannot_be_kept_is_refused_with_its_line(text, message):
    with pytest.raises(ContractError) as caught:
        load_contract(text, "f.json")
    assert message in str(caught.value)


def test_tabs_do_not_disturb_the_lines():
    with pytest.raises(ContractError, match=r"f\.json:3: properties\.a"):
        load_contract('{"type":\t"object",\n\t"properties": {\n\t\t"a": {}}}', "f.json")
