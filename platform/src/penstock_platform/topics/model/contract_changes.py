"""What a changed contract means for the silver table that was made by an earlier one.

Compatible, and made by ALTER TABLE: a column or a field more, ``int`` to ``bigint``, ``float`` to
``double``. A column that is no longer declared stays and is null from then on. Anything else would
change what the rows that are there mean, and is refused with the contract's file and line.

Types are Spark SQL's. A type is its name, or ``("array", element)``, ``("map", key, value)``,
``("struct", ((name, type), …))``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock_platform.topics.model.contract import COORDINATE_COLUMNS, Contract

SparkType = Any  # a recursive union, which mypy would have to be given at each use
_WIDER = {("int", "bigint"), ("float", "double")}
_JSON_NAMES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}
_TOKEN = re.compile(r"`(?:[^`]|``)*`|[<>,:]|[^<>,:`]+")


class ContractChangeError(ValueError):
    """A contract that does not fit the silver table: file, line, what differs, the ways out."""


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """One ALTER TABLE: ``path`` is quoted, ``add`` a column or field, else its type is widened."""

    path: str
    type: str
    add: bool


def column_changes(
    table: str, present: Mapping[str, SparkType], contract: Contract, topic: str
) -> list[ColumnChange]:
    """The changes that make the table fit the contract.

    ``present``: the table's columns by name. Raises ContractChangeError with every difference
    that no ALTER TABLE can make.
    """
    changes: list[ColumnChange] = []
    problems: list[str] = []
    there = {name.lower(): (name, kind) for name, kind in present.items()}
    for column in contract.columns:
        wanted = type_of_ddl(column.type)
        if column.name.lower() not in there:
            changes.append(ColumnChange(_quoted(column.name), column.type, add=True))
            continue
        name, kind = there[column.name.lower()]
        for found in _differences(_quoted(name), kind, wanted):
            if isinstance(found, ColumnChange):
                changes.append(found)
            else:
                problems.append(f"{contract.file}:{column.line}: {found}")
    if problems:
        short = f"; take it back, or declare version: {contract.version + 1} under schema"
        raise ContractChangeError(
            "\n".join(problem + short for problem in problems) + _ways_out(table, contract, topic)
        )
    return changes


def left_columns(present: Mapping[str, SparkType], contract: Contract) -> list[str]:
    """The table's columns that the contract no longer declares, in the table's order."""
    declared = {name.lower() for name, _ in (*COORDINATE_COLUMNS, *contract.silver_columns)}
    return [name for name in present if name.lower() not in declared]


def type_of_json(value: Any) -> SparkType:
    """A type as ``DataType.jsonValue()`` gives it."""
    if isinstance(value, str):
        return _JSON_NAMES.get(value, value)
    if value["type"] == "array":
        return ("array", type_of_json(value["elementType"]))
    if value["type"] == "map":
        return ("map", type_of_json(value["keyType"]), type_of_json(value["valueType"]))
    fields = tuple((field["name"], type_of_json(field["type"])) for field in value["fields"])
    return ("struct", fields)


def type_of_ddl(text: str) -> SparkType:
    """A type as a contract's column has it. Raises ValueError for what is none."""
    tokens = _TOKEN.findall(text)
    kind = _parsed(tokens)
    if tokens:
        raise ValueError(f"not a type: {text}")
    return kind


def ddl(kind: SparkType) -> str:
    """The reverse of ``type_of_ddl``."""
    if isinstance(kind, str):
        return kind
    if kind[0] == "struct":
        return f"struct<{','.join(f'{_quoted(name)}:{ddl(t)}' for name, t in kind[1])}>"
    return f"{kind[0]}<{','.join(ddl(t) for t in kind[1:])}>"


def _differences(path: str, present: SparkType, wanted: SparkType) -> Iterator[ColumnChange | str]:
    if present == wanted:
        return
    if (present, wanted) in _WIDER:
        yield ColumnChange(path, wanted, add=False)
    elif isinstance(present, str) or isinstance(wanted, str) or present[0] != wanted[0]:
        yield f"{path.replace('`', '')} is {ddl(wanted)} now, and the table has {ddl(present)}"
    elif present[0] == "array":
        yield from _differences(f"{path}.element", present[1], wanted[1])
    elif present[0] == "map":
        yield from _differences(f"{path}.value", present[2], wanted[2])
    else:
        yield from _field_differences(path, dict(present[1]), dict(wanted[1]))


def _field_differences(
    path: str, present: Mapping[str, SparkType], wanted: Mapping[str, SparkType]
) -> Iterator[ColumnChange | str]:
    there = {name.lower(): name for name in present}
    for name, kind in wanted.items():
        known = there.pop(name.lower(), None)
        if known is None:
            yield ColumnChange(f"{path}.{_quoted(name)}", ddl(kind), add=True)
        else:
            yield from _differences(f"{path}.{_quoted(known)}", present[known], kind)
    for name in there.values():
        place = f"{path}.{name}".replace("`", "")
        yield f"{place} is no longer declared, and the table has it inside {path.replace('`', '')}"


def _ways_out(table: str, contract: Contract, topic: str) -> str:
    newer = contract.version + 1
    return (
        f"\n{table} cannot be changed that way. With `schema: {{file: …, version: {newer}}}` "
        "windows are parsed into a table of its own from then on, and "
        f"`penstock table remake {topic}` parses the earlier ones into it from bronze. The old "
        "table stays"
    )


def _parsed(tokens: list[str]) -> SparkType:
    name = tokens.pop(0).strip()
    if not tokens or tokens[0] != "<":
        return name
    tokens.pop(0)
    parts: list[Any] = []
    while True:
        if name == "struct":
            field = tokens.pop(0).strip()
            tokens.pop(0)  # the colon
            parts.append((_unquoted(field), _parsed(tokens)))
        else:
            parts.append(_parsed(tokens))
        if tokens.pop(0) == ">":
            break
    return ("struct", tuple(parts)) if name == "struct" else (name, *parts)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name
