"""A topic's contract: a JSON Schema file, read as the columns of its silver table.

The schema describes one JSON object, the record's value. The mapping::

    string                    string          format date-time: timestamp, date: date
    integer                   bigint          format int32: int
    number                    double          format float: float
    boolean                   boolean
    array of items            array<…>
    object with properties    struct<…>       with additionalProperties alone: map<string,…>
    ["integer", "null"]       bigint that may be null

A property that is ``required`` and not nullable must be there. ``enum``, ``const``, ``minimum``,
``maximum``, ``exclusiveMinimum``, ``exclusiveMaximum``, ``minLength``, ``maxLength`` and
``pattern`` become rules. A record that breaks a rule is quarantined with the rule's reason.
Further keys of a record are ignored, so that a producer may add one without asking.

Anything else that would change which records are valid is refused here, with file and line,
rather than passed over in silence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from jsonschema.exceptions import SchemaError  # type: ignore[import-untyped]

from penstock_platform.topics.model.declaration import key_lines

COORDINATE_COLUMNS = (
    ("window_id", "string"),
    ("_kafka_partition", "int"),
    ("_kafka_offset", "bigint"),
    ("_kafka_timestamp", "timestamp"),
)
# Names of Iceberg's own metadata columns: a table that has one of them cannot be read with them,
# and row-level deletes are planned with them.
_TABLE_FORMAT_NAMES = frozenset(
    {"_partition", "_file", "_pos", "_deleted", "_spec_id", "_row_id"}
    | {"_last_updated_sequence_number"}
)
Path = tuple[str | int, ...]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SCALARS = {
    ("string", "date-time"): ("timestamp", "timestamptz"),
    ("string", "date"): ("date", "date"),
    ("integer", "int32"): ("int", "int"),
    ("number", "float"): ("float", "float"),
}
_PLAIN = {
    "string": ("string", "string"),
    "integer": ("bigint", "long"),
    "number": ("double", "double"),
    "boolean": ("boolean", "boolean"),
}
# Say something about a value without changing which values are valid (as far as we check them).
_NOTES = frozenset(
    {"$schema", "$id", "$comment", "title", "description", "examples", "default", "deprecated"}
    | {"readOnly", "writeOnly", "format", "type"}
)
_RULES = frozenset(
    {"enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
    | {"minLength", "maxLength", "pattern"}
)


class ContractError(ValueError):
    """A contract that cannot be used: file, line, key, what is wrong and what would do."""


@dataclass(frozen=True, slots=True)
class ContractColumn:
    """A column of silver. ``type`` is Spark SQL's, ``iceberg_type`` the table format's name;
    ``line`` is where the contract's file has it."""

    name: str
    type: str
    iceberg_type: str
    nullable: bool
    comment: str = ""
    line: int = field(default=1, compare=False)


@dataclass(frozen=True, slots=True)
class ContractRule:
    """``condition`` is Spark SQL over the parsed columns; a row for which it is not true (false or
    null) is quarantined with ``reason``."""

    column: str
    condition: str
    reason: str


@dataclass(frozen=True, slots=True)
class Contract:
    """The columns and rules of one contract file; ``version`` is that of the silver table."""

    file: str
    title: str
    columns: tuple[ContractColumn, ...]
    rules: tuple[ContractRule, ...]
    version: int = 1

    @property
    def silver_columns(self) -> tuple[tuple[str, str], ...]:
        """Coordinates, then the contract's columns, as (name, Spark SQL type)."""
        return (*COORDINATE_COLUMNS, *((c.name, c.type) for c in self.columns))


def load_contract(text: str, file: str, version: int = 1) -> Contract:
    """Read a contract from the text of its file. Raises ContractError; all problems at once.

    ``version`` is the silver table's, as the topic's declaration has it.
    """
    try:
        schema = json.loads(text)
    except json.JSONDecodeError as error:
        raise ContractError(
            f"{file}:{error.lineno}: not JSON: {error.msg} (column {error.colno})"
        ) from error
    # JSON is YAML but for tabs, which occur in JSON only between tokens.
    contract = _Reader(file, key_lines(text.replace("\t", " "))).read(schema)
    return replace(contract, version=version)


class _Reader:
    def __init__(self, file: str, lines: Mapping[Path, int]) -> None:
        self._file = file
        self._lines = lines
        self._problems: list[tuple[int, str]] = []

    def read(self, schema: Any) -> Contract:
        if not isinstance(schema, dict) or schema.get("type") != "object":
            raise ContractError(f'{self._file}:1: a contract describes an object: "type": "object"')
        try:
            Draft202012Validator.check_schema(schema)
        except SchemaError as error:
            self._problem(tuple(error.absolute_path), f"not a JSON Schema: {error.message}")
            raise self._error() from error
        columns, rules = self._columns(schema)
        self._check_names(columns)
        if self._problems:
            raise self._error()
        return Contract(
            file=self._file,
            title=str(schema.get("title", "")),
            columns=tuple(columns),
            rules=tuple(rules),
        )

    def _columns(self, schema: dict[str, Any]) -> tuple[list[ContractColumn], list[ContractRule]]:
        properties = schema.get("properties", {})
        required = set(schema.get("required", ()))
        self._check_keys((), schema, {"properties", "required", "additionalProperties"})
        if schema.get("additionalProperties") is False:
            self._problem(
                ("additionalProperties",), "further keys are ignored, not refused; leave it out"
            )
        if not properties:
            self._problem(("properties",), "a contract needs at least one property")
        for name in sorted(required - set(properties)):
            self._problem(("required",), f"{name} is required and not among the properties")
        columns: list[ContractColumn] = []
        rules: list[ContractRule] = []
        for name, found in properties.items():
            path: Path = ("properties", name)
            spark, iceberg, nullable = self._type(found, path, top=True)
            must = name in required and not nullable
            comment = str(found.get("description", "")) if isinstance(found, dict) else ""
            line = self._lines.get(path, 1)
            columns.append(ContractColumn(name, spark, iceberg, not must, comment, line))
            if must:
                rules.append(
                    ContractRule(name, f"{_quoted(name)} IS NOT NULL", f"{name} is missing")
                )
            rules += _rules(name, found)
        return columns, rules

    def _type(self, schema: Any, path: Path, *, top: bool = False) -> tuple[str, str, bool]:
        """Spark type, Iceberg type, may it be null. Problems are collected."""
        if not isinstance(schema, dict):
            self._problem(path, "a property needs a type")
            return "string", "string", True
        kinds = schema.get("type", [])
        kinds = [kinds] if isinstance(kinds, str) else list(kinds)
        nullable = "null" in kinds
        kinds = [kind for kind in kinds if kind != "null"]
        if len(kinds) != 1:
            self._problem(path, 'give one type, or one and "null": "type": ["integer", "null"]')
            return "string", "string", True
        kind = kinds[0]
        if kind == "array":
            return (*self._array(schema, path), nullable)
        if kind == "object":
            return (*self._object(schema, path), nullable)
        self._check_keys(path, schema, _RULES if top else frozenset())
        spark, iceberg = _SCALARS.get((kind, schema.get("format", "")), _PLAIN[kind])
        if spark in ("timestamp", "date") and (used := sorted(_RULES & set(schema))):
            self._problem((*path, used[0]), f"{used[0]} does not apply to a {spark}; leave it out")
        return spark, iceberg, nullable

    def _array(self, schema: dict[str, Any], path: Path) -> tuple[str, str]:
        self._check_keys(path, schema, {"items"})
        spark, iceberg, _ = self._type(schema.get("items"), (*path, "items"))
        return f"array<{spark}>", f"list<{iceberg}>"

    def _object(self, schema: dict[str, Any], path: Path) -> tuple[str, str]:
        self._check_keys(path, schema, {"properties", "additionalProperties"})
        properties, further = schema.get("properties"), schema.get("additionalProperties")
        if properties:
            fields = [
                (name, *self._type(found, (*path, "properties", name))[:2])
                for name, found in properties.items()
            ]
            spark = ",".join(f"{_quoted(name)}:{kind}" for name, kind, _ in fields)
            iceberg = ",".join(f"{name}:{kind}" for name, _, kind in fields)
            return f"struct<{spark}>", f"struct<{iceberg}>"
        if isinstance(further, dict):
            spark, iceberg, _ = self._type(further, (*path, "additionalProperties"))
            return f"map<string,{spark}>", f"map<string,{iceberg}>"
        self._problem(path, "an object needs properties, or additionalProperties with a type")
        return "string", "string"

    def _check_keys(
        self, path: Path, schema: dict[str, Any], known: set[str] | frozenset[str]
    ) -> None:
        for key in schema:
            if key in _NOTES or key in known or key.startswith("x-"):
                continue
            if key in _RULES:
                reason = f"{key} is checked only on the contract's own properties, not inside one"
            elif key == "required":
                reason = "required inside a nested object is not checked; leave it out"
            else:
                reason = f"{key} is not supported; describe properties by type, format and rules"
            self._problem((*path, key), reason)

    def _check_names(self, columns: list[ContractColumn]) -> None:
        reserved = {name for name, _ in COORDINATE_COLUMNS}
        seen: dict[str, str] = {}
        for column in columns:
            path: Path = ("properties", column.name)
            if not _NAME.fullmatch(column.name):
                self._problem(path, "a column's name has letters, digits and _, no digit first")
            elif column.name.lower() in reserved:
                self._problem(path, f"{column.name} is a column of every silver table; rename it")
            elif column.name.lower() in _TABLE_FORMAT_NAMES:
                self._problem(path, f"{column.name} is a name of the table format; rename it")
            elif (other := seen.setdefault(column.name.lower(), column.name)) != column.name:
                self._problem(
                    path, f"differs from {other} only in case, which SQL does not distinguish"
                )

    def _problem(self, path: Path, message: str) -> None:
        line = next(
            (self._lines[path[:n]] for n in range(len(path), -1, -1) if path[:n] in self._lines), 1
        )
        key = ".".join(str(part) for part in path)
        self._problems.append((line, f"{self._file}:{line}: {key}: {message}"))

    def _error(self) -> ContractError:
        return ContractError("\n".join(text for _, text in sorted(self._problems)))


def _rules(name: str, schema: Any) -> Iterator[ContractRule]:
    """The rules of one property; each lets null through (that is for ``required`` to refuse)."""
    if not isinstance(schema, dict):
        return
    column = _quoted(name)
    for key, template, reason in (
        ("minimum", "{c} >= {v}", "{n} is below {v}"),
        ("maximum", "{c} <= {v}", "{n} is above {v}"),
        ("exclusiveMinimum", "{c} > {v}", "{n} is not above {v}"),
        ("exclusiveMaximum", "{c} < {v}", "{n} is not below {v}"),
        ("minLength", "char_length({c}) >= {v}", "{n} is shorter than {v}"),
        ("maxLength", "char_length({c}) <= {v}", "{n} is longer than {v}"),
        ("pattern", "{c} RLIKE {v}", "{n} does not match its pattern"),
        ("enum", "{c} IN ({v})", "{n} is not one of its values"),
        ("const", "{c} = {v}", "{n} is not its constant"),
    ):
        if key not in schema:
            continue
        value = schema[key]
        values = [v for v in value if v is not None] if key == "enum" else [value]
        literal = ", ".join(_literal(v) for v in values)
        # An enum of null alone lets nothing but null through; `IN ()` is not SQL.
        condition = template.format(c=column, v=literal) if values else "false"
        yield ContractRule(name, f"{column} IS NULL OR {condition}", reason.format(n=name, v=value))


def _literal(value: object) -> str:
    """A Spark SQL literal, with its escapes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return f"{value!r}D"
    escaped = str(value).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
