"""The JSON schema of a declaration, as editors, `dg` and Dagster's pages of component types use it.

It has no references, so that it can be put into another schema, and takes a template, such as
``{{ env.PARTITIONS }}``, where a number, a truth value or one of a few words is expected.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

SCHEMA_FILE = Path("schema") / "defs.schema.json"  # of a project, for editors
TEMPLATE = {"type": "string", "pattern": r"\{\{.*\}\}"}
_SCALARS = ("integer", "number", "boolean")
_NARROWED = ("enum", "const", "pattern")  # a string that is not any
_NOTES = ("title", "description", "default", "examples")


def attributes_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The schema of a document's ``attributes``: an object, each key with its description."""
    document = model.model_json_schema()
    definitions = document.pop("$defs", {})
    found: dict[str, Any] = _inlined(document, definitions)
    return found


def _inlined(node: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_inlined(part, definitions) for part in node]
    if not isinstance(node, dict):
        return node
    reference = node.get("$ref")
    if isinstance(reference, str):
        # What the key says of itself counts more than what the model says of all its keys.
        own = {key: value for key, value in node.items() if key != "$ref"}
        node = {**definitions[reference.rpartition("/")[2]], **own}
    return _or_template({key: _inlined(value, definitions) for key, value in node.items()})


def _or_template(node: dict[str, Any]) -> dict[str, Any]:
    kind = node.get("type")
    narrowed = kind == "string" and any(key in node for key in _NARROWED) and node != TEMPLATE
    if not narrowed and not (isinstance(kind, str) and kind in _SCALARS):
        return node
    notes = {key: node[key] for key in _NOTES if key in node}
    rest = {key: value for key, value in node.items() if key not in _NOTES}
    return {**notes, "anyOf": [rest, TEMPLATE]}
