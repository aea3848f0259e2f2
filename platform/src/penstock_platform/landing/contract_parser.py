"""JSON values to typed columns, strictly: a row is right in every field, or it has a reason.

What Spark's ``from_json`` gives away in its permissive mode, and what is done about it:

- A field of the wrong type becomes null. The corrupt-record column says so for the whole row; only
  then the row is read a second time, as a variant, to find out which field it was.
- A string field takes any token: 5 becomes "5". Text that could have been another token (a number,
  true, false, or the beginning of an object or array) is looked up in the variant too.
- Text after the value is passed over: ``{"a": 1} x``. So the value is parsed as the first of two
  elements of an array, and the second must arrive, under a name that no value can know.
- Times are taken from numbers and from fragments ("12:00" is today at noon). They are parsed as
  strings here: ISO 8601 with date, time and, at best, a zone; without one they are UTC.

Stricter than JSON Schema in one thing: an integer is written without fraction and exponent.
More lenient in one: of a repeated key the last counts.
"""

from __future__ import annotations

import uuid
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from penstock_platform.topics.model.contract import Contract, ContractColumn

RAW_VALUE = "__value"
REASON = "__reason"
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
# What ``schema_of_variant`` calls the token of a scalar.
_TOKENS = {
    "string": "^STRING$",
    "timestamp": "^STRING$",
    "date": "^STRING$",
    "boolean": "^BOOLEAN$",
    "bigint": "^BIGINT$",
    "int": "^BIGINT$",
    "double": r"^(BIGINT|DOUBLE|DECIMAL\(.*)$",
    "float": r"^(BIGINT|DOUBLE|DECIMAL\(.*)$",
}


def parse_values(rows: DataFrame, contract: Contract) -> DataFrame:
    """Parse the binary column ``RAW_VALUE`` of ``rows``; their other columns stay as they are.

    Adds one column for each of the contract's, and ``REASON``: null where the row keeps the
    contract. Both have names that no contract's column has: ``value`` and ``reason`` are words
    that people use.
    """
    token = f"__penstock_{uuid.uuid4().hex}"
    kept = [sf.col(name) for name in rows.columns]
    text = sf.col(RAW_VALUE).cast("string")
    wrapped = sf.concat(sf.lit(f'{{"{token}":['), text, sf.lit(f',{{"{_END}":"{token}"}}]}}'))
    # The generator keeps the optimiser from parsing once for every use of the result.
    parsed = rows.select(
        *kept,
        sf.explode(
            sf.array(sf.from_json(wrapped, _parse_schema(contract, token), _PARSE_OPTIONS))
        ).alias("__j"),
    )
    both = sf.col(f"__j.{token}")
    whole = (
        sf.col(f"__j.{_CORRUPT}").isNull()
        & (sf.size(both) == 2)
        & (both[1][_END] == token)
        & both[0].isNotNull()
    )
    raw = parsed.select(
        *kept,
        sf.coalesce(whole, sf.lit(False)).alias("__whole"),
        *(both[0][c.name].alias(f"__raw_{c.name}") for c in contract.columns),
    )
    nested = _nested_types(rows, contract)
    typed = raw.select("*", *(_value(c).alias(c.name) for c in contract.columns))
    looked = typed.select("*", _looked_up(contract, nested).alias("__looked"))
    return looked.select(
        *kept,
        *(sf.col(_quoted(c.name)) for c in contract.columns),
        _reason(contract, nested).alias(REASON),
    )


def _parse_schema(contract: Contract, token: str) -> str:
    fields = ",".join(f"`{c.name}`:{_parse_type(c)}" for c in contract.columns)
    return f"`{token}` array<struct<{fields},`{_END}`:string>>, {_CORRUPT} string"


def _parse_type(column: ContractColumn) -> str:
    """What ``from_json`` is to read a column as."""
    if column.type in ("timestamp", "date"):
        return "string"
    if _is_nested(column) and any(t in column.type for t in ("string", "timestamp", "date")):
        return "variant"
    return column.type


def _is_nested(column: ContractColumn) -> bool:
    return "<" in column.type


def _nested_types(rows: DataFrame, contract: Contract) -> dict[str, DataType]:
    """The types of the columns that are arrays, maps or structs."""
    columns = [c for c in contract.columns if _is_nested(c)]
    if not columns:
        return {}
    ddl = ", ".join(f"{_quoted(c.name)} {c.type}" for c in columns)
    schema = rows.sparkSession.createDataFrame([], ddl).schema
    return {field.name: field.dataType for field in schema.fields}


def _value(column: ContractColumn) -> Column:
    raw = sf.col(f"__raw_{column.name}")
    if column.type == "timestamp":
        return sf.when(raw.rlike(_TIMESTAMP), raw.try_cast("timestamp"))
    if column.type == "date":
        return sf.when(raw.rlike(_DATE), raw.try_cast("date"))
    if _parse_type(column) == "variant":
        return sf.try_variant_get(raw, "$", column.type)
    return raw


def _looked_up(contract: Contract, nested: dict[str, DataType]) -> Column:
    """What a second look at a row's tokens finds, for the rows that need one; else null.

    One variant for all questions: a lambda's variable is computed once.
    """
    doubts = [
        sf.coalesce(sf.col(f"__raw_{c.name}").rlike(_MAYBE_NO_STRING), sf.lit(False))
        for c in contract.columns
        if c.type == "string"
    ]
    doubtful = reduce(lambda a, b: a | b, doubts, ~sf.col("__whole"))
    variants = sf.array(sf.try_parse_json(sf.col(RAW_VALUE).cast("string")))
    return sf.when(doubtful, sf.transform(variants, lambda v: _wrong_token(contract, nested, v))[0])


def _reason(contract: Contract, nested: dict[str, DataType]) -> Column:
    """The first thing that is wrong with a row, as a sentence; null for none."""
    reason = sf.when(sf.col(RAW_VALUE).isNull(), "value is null")
    reason = reason.when(~sf.is_valid_utf8(sf.col(RAW_VALUE).cast("string")), "value is not UTF-8")
    reason = reason.when(sf.col("__looked").isNotNull(), sf.col("__looked"))
    reason = reason.when(~sf.col("__whole"), "value is not one JSON object")
    for column in contract.columns:
        if (broken := _broken(column, nested.get(column.name))) is not None:
            reason = reason.when(*broken)
    for rule in contract.rules:
        kept = sf.coalesce(sf.expr(rule.condition), sf.lit(False))
        reason = reason.when(~kept, rule.reason)
    return reason


def _broken(column: ContractColumn, nested: DataType | None) -> tuple[Column, str] | None:
    """What parsing itself did not refuse, as (condition, reason)."""
    raw, value = sf.col(f"__raw_{column.name}"), sf.col(_quoted(column.name))
    if column.type in ("timestamp", "date"):
        kind = "a time such as 2026-11-20T12:00:00Z" if column.type == "timestamp" else "a date"
        return raw.isNotNull() & value.isNull(), f"{column.name} is not {kind}"
    if column.type in ("double", "float"):
        return sf.abs(value) == sf.lit(float("inf")), f"{column.name} is out of range"
    if nested is not None and _parse_type(column) == "variant":
        return ~_fits(raw, nested), f"{column.name} is not {column.type}"
    return None


def _wrong_token(contract: Contract, nested: dict[str, DataType], variant: Column) -> Column:
    """Which field has a token of another kind than the contract's; null for none of them."""
    kind = sf.schema_of_variant(variant)
    reason = sf.when(variant.isNull(), "value is not JSON")
    reason = reason.when(
        ~kind.startswith("OBJECT"),
        sf.concat(sf.lit("value is not an object but "), _kind_name(kind)),
    )
    for column in contract.columns:
        found = sf.schema_of_variant(sf.try_variant_get(variant, _path(column.name), "variant"))
        reason = reason.when(
            ~(found.rlike(_token_pattern(column)) | (found == "VOID")),
            sf.concat(sf.lit(f"{column.name} is not {column.type} but "), _kind_name(found)),
        )
    for column in contract.columns:  # tokens of the right kind whose contents do not fit
        found = sf.try_variant_get(variant, _path(column.name), "variant")
        if column.name in nested:
            fits = _fits(found, nested[column.name])
        elif column.type == "int":
            fits = sf.try_variant_get(found, "$", "int").isNotNull() | (
                sf.schema_of_variant(found) != "BIGINT"
            )
        else:
            continue
        reason = reason.when(~fits, f"{column.name} is not {column.type}")
    return reason


def _fits(variant: Column, kind: DataType) -> Column:
    """Whether a variant is exactly of this type, all the way down; null counts as every type."""
    found = sf.schema_of_variant(variant)
    if isinstance(kind, ArrayType):
        elements = sf.try_variant_get(variant, "$", "array<variant>")
        inner = kind.elementType
        fits = found.startswith("ARRAY") & sf.forall(elements, lambda e: _fits(e, inner))
    elif isinstance(kind, MapType):
        values = sf.map_values(sf.try_variant_get(variant, "$", "map<string,variant>"))
        inner = kind.valueType
        fits = found.startswith("OBJECT") & sf.forall(values, lambda e: _fits(e, inner))
    elif isinstance(kind, StructType):
        fits = found.startswith("OBJECT")
        for field in kind.fields:
            part = sf.try_variant_get(variant, _path(field.name), "variant")
            fits = fits & _fits(part, field.dataType)
    else:
        fits = _scalar_fits(variant, found, kind.simpleString())
    return sf.coalesce(variant.isNull() | sf.is_variant_null(variant) | fits, sf.lit(False))


def _scalar_fits(variant: Column, found: Column, kind: str) -> Column:
    fits = found.rlike(_TOKENS[kind]) & sf.try_variant_get(variant, "$", kind).isNotNull()
    pattern = {"timestamp": _TIMESTAMP, "date": _DATE}.get(kind)
    if pattern is not None:
        fits = fits & sf.try_variant_get(variant, "$", "string").rlike(pattern)
    return fits


def _kind_name(kind: Column) -> Column:
    """The kind of a token as a person would name it, without a long value's inner structure."""
    return sf.lower(sf.regexp_extract(kind, "^[A-Z]+", 0))


def _token_pattern(column: ContractColumn) -> str:
    if _is_nested(column):
        return "^ARRAY" if column.type.startswith("array") else "^OBJECT"
    return _TOKENS[column.type]


def _path(name: str) -> str:
    escaped = name.replace("'", "\\'")
    return f"$['{escaped}']"


def _quoted(name: str) -> str:
    return f"`{name}`"
