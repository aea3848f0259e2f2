"""JSON values to typed columns, strictly: a row is right in every field, or it has a reason.

What Spark's ``from_json`` gives away in its permissive mode, and what is done about it:

- A field of the wrong type becomes null. The corrupt-record column says so for the whole row; only
  then the row is read a second time, as a variant, to find out which field it was.
- A string field takes any token: 5 becomes "5". Text that could have been another token (a number,
  true, false, or the beginning of an object or array) is looked up in the variant too.
- Text after the value is passed over: ``{"a": 1} x``. So the value is parsed as the first of two
  elements of an array, and the second must arrive.
- Times are taken from numbers and from fragments ("12:00" is today at noon). They are parsed as
  strings here: ISO 8601 with date, time and, at best, a zone; without one they are UTC.

Stricter than JSON Schema in one thing: an integer is written without fraction and exponent.
More lenient in one: of a repeated key the last counts.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from penstock_platform.domain.contract import Contract, ContractColumn

_END = "__penstock_end"
_CORRUPT = "__penstock_corrupt"
_PARSE_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
_TIMESTAMP = r"^\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d+)?\s?([Zz]|[+-]\d{2}:?\d{2})?$"
_DATE = r"^\d{4}-\d{2}-\d{2}$"
# Text that a string field may also have got from a token that is no string.
_MAYBE_NO_STRING = r"^(?:-?[0-9][0-9.eE+-]*$|true$|false$|[{\[])"
_FOUND = {
    "string": "string",
    "timestamp": "string",
    "date": "string",
    "boolean": "boolean",
    "bigint": "bigint",
    "int": "bigint",
}


@dataclass(frozen=True, slots=True)
class ParsedRows:
    """The rows with ``columns`` typed and a ``reason``: null where the row keeps the contract."""

    rows: DataFrame
    reason: str = "reason"


def parse_values(rows: DataFrame, contract: Contract) -> ParsedRows:
    """Parse the binary column ``value`` of ``rows``; their other columns stay as they are.

    Adds one column for each of the contract's, and ``reason``.
    """
    token = uuid.uuid4().hex  # what a value cannot contain by design
    kept = [sf.col(name) for name in rows.columns]
    text = sf.col("value").cast("string")
    wrapped = sf.concat(sf.lit('{"a":['), text, sf.lit(f',{{"{_END}":"{token}"}}]}}'))
    # The generator keeps the optimiser from parsing once for every use of the result.
    parsed = rows.select(
        *kept,
        sf.explode(sf.array(sf.from_json(wrapped, _parse_schema(contract), _PARSE_OPTIONS))).alias(
            "__j"
        ),
    )
    whole = (
        sf.col(f"__j.{_CORRUPT}").isNull()
        & (sf.size("__j.a") == 2)
        & (sf.col("__j.a")[1][_END] == token)
        & sf.col("__j.a")[0].isNotNull()
    )
    flat = parsed.select(
        *kept,
        sf.coalesce(whole, sf.lit(False)).alias("__whole"),
        *(sf.col("__j.a")[0][c.name].alias(f"__raw_{c.name}") for c in contract.columns),
    )
    typed = flat.select(
        *kept, "__whole", *_raw(contract), *(_value(c).alias(c.name) for c in contract.columns)
    )
    final = typed.select(
        *kept,
        *(sf.col(_quoted(c.name)) for c in contract.columns),
        _reason(contract).alias("reason"),
    )
    return ParsedRows(final)


def _raw(contract: Contract) -> list[Column]:
    return [sf.col(f"__raw_{c.name}") for c in contract.columns]


def _parse_schema(contract: Contract) -> str:
    fields = ",".join(f"`{c.name}`:{_parse_type(c)}" for c in contract.columns)
    return f"a array<struct<{fields},`{_END}`:string>>, {_CORRUPT} string"


def _parse_type(column: ContractColumn) -> str:
    """What ``from_json`` is to read a column as."""
    if column.type in ("timestamp", "date"):
        return "string"
    if _is_nested(column) and _holds_text(column):
        return "variant"
    return column.type


def _is_nested(column: ContractColumn) -> bool:
    return "<" in column.type


def _holds_text(column: ContractColumn) -> bool:
    return any(kind in column.type for kind in ("string", "timestamp", "date"))


def _value(column: ContractColumn) -> Column:
    raw = sf.col(f"__raw_{column.name}")
    if column.type == "timestamp":
        return sf.when(raw.rlike(_TIMESTAMP), raw.try_cast("timestamp"))
    if column.type == "date":
        return sf.when(raw.rlike(_DATE), raw.try_cast("date"))
    if _parse_type(column) == "variant":
        return sf.try_variant_get(raw, "$", column.type)
    return raw


def _reason(contract: Contract) -> Column:
    """The first thing that is wrong with a row, as a sentence; null for none."""
    text = sf.col("value").cast("string")
    doubtful = reduce(lambda a, b: a | b, _doubts(contract), sf.lit(False))
    # One variant for all questions: the lambda's variable is computed once.
    looked_up = sf.transform(sf.array(sf.try_parse_json(text)), lambda v: _wrong_kind(contract, v))[
        0
    ]
    reason = sf.when(sf.col("value").isNull(), "value is null")
    reason = reason.when(~sf.is_valid_utf8(text), "value is not UTF-8")
    reason = reason.when(
        ~sf.col("__whole"), sf.coalesce(looked_up, sf.lit("value is not one JSON object"))
    )
    reason = reason.when(doubtful & looked_up.isNotNull(), looked_up)
    for column in contract.columns:
        for broken, why in _broken(column):
            reason = reason.when(broken, why)
    for rule in contract.rules:
        kept = sf.coalesce(sf.expr(rule.condition), sf.lit(False))
        reason = reason.when(~kept, rule.reason)
    return reason


def _doubts(contract: Contract) -> list[Column]:
    return [
        sf.coalesce(sf.col(f"__raw_{c.name}").rlike(_MAYBE_NO_STRING), sf.lit(False))
        for c in contract.columns
        if c.type == "string"
    ]


def _broken(column: ContractColumn) -> list[tuple[Column, str]]:
    """What parsing itself did not refuse, as (condition, reason)."""
    raw, value = sf.col(f"__raw_{column.name}"), sf.col(_quoted(column.name))
    if column.type in ("timestamp", "date"):
        kind = "a time such as 2026-11-20T12:00:00Z" if column.type == "timestamp" else "a date"
        return [(raw.isNotNull() & value.isNull(), f"{column.name} is not {kind}")]
    if column.type in ("double", "float"):
        endless = sf.abs(value) == sf.lit(float("inf"))
        return [(sf.coalesce(endless, sf.lit(False)), f"{column.name} is out of range")]
    if _parse_type(column) == "variant":
        there = raw.isNotNull() & ~sf.is_variant_null(raw)
        fits = sf.schema_of_variant(raw).rlike(_nested_pattern(column.type))
        why = f"{column.name} is not {column.type}"
        return [(there & (value.isNull() | ~fits), why)]
    return []


def _wrong_kind(contract: Contract, variant: Column) -> Column:
    """Which field has a token of another kind than the contract's; null for none of them."""
    kind = sf.schema_of_variant(variant)
    reason = sf.when(variant.isNull(), "value is not JSON")
    reason = reason.when(
        ~kind.startswith("OBJECT"), sf.concat(sf.lit("value is not an object but "), _told(kind))
    )
    for column in contract.columns:
        wanted = _token_pattern(column)
        if wanted is None:
            continue
        found = sf.schema_of_variant(sf.try_variant_get(variant, f"$['{column.name}']", "variant"))
        reason = reason.when(
            ~found.rlike(wanted),
            sf.concat(sf.lit(f"{column.name} is not {column.type} but "), _told(found)),
        )
    return reason


def _told(kind: Column) -> Column:
    """The kind of a token as a person would name it, without a long value's inner structure."""
    return sf.lower(sf.regexp_extract(kind, "^[A-Z]+", 0))


def _token_pattern(column: ContractColumn) -> str | None:
    if _is_nested(column):
        return r"^(VOID|ARRAY|OBJECT)" if _parse_type(column) == "variant" else None
    if column.type in ("double", "float"):
        return r"^(VOID|BIGINT|DOUBLE|DECIMAL)"
    return f"^(VOID|{_FOUND[column.type].upper()})$"


def _nested_pattern(kind: str) -> str:
    """``array<string>`` as a pattern over ``schema_of_variant``: exact for arrays and maps of
    strings, by outer shape for what is deeper."""
    if kind in ("array<string>", "array<timestamp>", "array<date>"):
        return r"^ARRAY<(VOID|STRING)>$"
    return r"^ARRAY<" if kind.startswith("array") else r"^OBJECT<"


def _quoted(name: str) -> str:
    return f"`{name}`"
