"""Reading a component's YAML so that every mistake is told with its file and line.

Dagster hands a component its attributes and where each key stands. The platform's own models do the
judging (``domain.topics.parse_topic``), because they know the remedy; this module joins the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import BaseModel, ConfigDict

KeyPath = tuple[str | int, ...]


class DeclarationError(dg.DagsterInvalidDefinitionError):
    """A declaration that cannot be used: file, line, key, what was found and what would do."""


def attributes_model(name: str, described_by: type[BaseModel]) -> type[BaseModel]:
    """A model that takes any keys and shows ``described_by``'s JSON schema to editors and `dg`.

    Judging is left to ``load``, which can name the line in a sentence of its own.
    """

    def schema(document: dict[str, Any]) -> None:
        document.clear()
        document.update(described_by.model_json_schema())

    config = ConfigDict(extra="allow", json_schema_extra=schema)
    return type(name, (BaseModel,), {"model_config": config, "__module__": __name__})


def values_of(attributes: BaseModel | None) -> dict[str, Any]:
    """The raw attributes as they stand in the YAML document."""
    return dict(attributes.model_extra or {}) if attributes is not None else {}


def file_of(context: dg.ComponentLoadContext) -> str:
    """The declaration's file, as short as it can be said from where the command runs."""
    tree = context.resolution_context.source_position_tree
    path = Path(tree.position.filename) if tree is not None else context.path
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def lines_of(context: dg.ComponentLoadContext) -> Mapping[KeyPath, int]:
    """1-based lines of every key path under ``attributes``; empty outside of YAML."""
    tree = context.resolution_context.source_position_tree
    attributes = tree.children.get("attributes") if tree is not None else None
    return dict(_walk(attributes, ())) if attributes is not None else {}


def place_of(context: dg.ComponentLoadContext, *path: str | int) -> str:
    """`file:line` of a key, or of the nearest one above it."""
    lines = lines_of(context)
    for length in range(len(path), -1, -1):
        line = lines.get(path[:length])
        if line is not None:
            return f"{file_of(context)}:{line}"
    return file_of(context)


def place_in_project(context: dg.ComponentLoadContext) -> str:
    """`file:line` of the declaration, from the project's root: the same on every machine."""
    place = place_of(context)
    root = f"{context.project_root}/"
    absolute = place if place.startswith("/") else str(Path.cwd() / place)
    return absolute.removeprefix(root)


def _walk(tree: Any, path: KeyPath) -> Iterator[tuple[KeyPath, int]]:
    yield path, tree.position.start.line
    for key, child in tree.children.items():
        yield from _walk(child, (*path, key))
