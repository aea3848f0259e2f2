"""The JSON schema of a document under ``defs/``: what editors complete and check by.

``penstock schema`` writes it into a project; the first line of a declaration names it
(``# yaml-language-server: $schema=…``). Documents of other component types are let through.
"""

from __future__ import annotations

import json
from typing import Any

import penstock_platform

PLATFORM = "penstock_platform"
_KEYS: dict[str, Any] = {
    "attributes": {"description": "What is declared; its keys depend on the type."},
    "template_vars_module": {
        "type": ["string", "null"],
        "description": "A Python module whose template variables the attributes may use.",
    },
    "requirements": {
        "type": ["object", "null"],
        "description": "env: names of the environment variables that the attributes use.",
    },
    "post_processing": {
        "type": ["object", "null"],
        "description": "assets: changes to the assets that the component makes.",
    },
}


def document_schema() -> dict[str, Any]:
    """The schema (JSON Schema, draft 7) of one YAML document. Imports Dagster."""
    models = {
        f"{PLATFORM}.{name}": getattr(penstock_platform, name)
        for name in penstock_platform.__all__
        if name.endswith("Component")
    }
    types = {
        "description": "The component type: one of Penstock's, or any other's full name.",
        "anyOf": [{"enum": sorted(models)}, {"type": "string"}],
    }
    chosen = [
        {
            "if": {"properties": {"type": {"const": name}}, "required": ["type"]},
            "then": {"properties": {"attributes": component.get_model_cls().model_json_schema()}},
        }
        for name, component in sorted(models.items())
    ]
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "A declaration of Penstock",
        "type": "object",
        "properties": {"type": types, **_KEYS},
        "required": ["type"],
        "additionalProperties": False,
        "allOf": chosen,
    }


def schema_text() -> str:
    """The same as the text of a file."""
    return json.dumps(document_schema(), indent=2) + "\n"
