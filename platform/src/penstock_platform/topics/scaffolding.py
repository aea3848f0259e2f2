"""What `dg scaffold defs penstock_platform.TopicComponent orders` writes: a declaration that loads.

The default of Dagster is a document without attributes, which no component of ours can load.
"""

from __future__ import annotations

import json
import os
from abc import abstractmethod
from pathlib import Path
from typing import Any

import click
import dagster as dg
import yaml
from pydantic import BaseModel, Field

from penstock_platform.topics.model.declaration import table_part
from penstock_platform.topics.yaml_schema import SCHEMA_FILE

DECLARATION = "defs.yaml"
CONTRACT: dict[str, Any] = {
    "title": "A record",
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "happened_at": {"type": "string", "format": "date-time"},
    },
    "required": ["id", "happened_at"],
}
TOPIC = """\
type: {type}
attributes:
  metadata: {{name: {name}}}
  description: What a record is, and who sends it.
  # owners: ["team:shop"]         # alerts name them
  spec: {{partitions: {partitions}}}
  schema: {{file: {contract}}}
  land: {{window: {window}}}        # minutely, hourly, daily, or a cron in UTC
  retention: {{keep: {keep}}}           # the broker deletes a window then, and only if it is proven
  audit: {{grace: 15m}}
"""
PLATFORM = """\
# The producers' evidence: a topic like any other.
type: penstock_platform.TopicComponent
attributes:
  metadata: {{name: __penstock_audit}}
  description: What audited producers say they sent. The books compare it with the log.
  spec: {{partitions: 3}}
  land: {{window: hourly}}
  retention: {{keep: 7d}}
  audit: {{accept_unaudited: true}}
---
# When the platform looks again at what it has proven, and what it may delete.
type: {type}
attributes:
  reverify: {{cron: "*/10 * * * *"}}
  retention: {{cron: "5 * * * *", apply: false}}   # true: delete what is proven and due
  observe: {{cron: "* * * * *"}}
"""
QUALITY = """\
type: {type}
attributes:
  topic: {topic}
  expectations:
    - type: expect_column_values_to_not_be_null
      kwargs: {{column: {column}}}
      severity: critical          # critical: ERROR; warning, info: WARN
"""


RESOURCE = """\
type: {type}
attributes:
  # home: /var/lib/penstock     # the state directory; PENSTOCK_HOME, else .penstock
  # Which variable of this deployment holds what: their names, never their values.
  env: {{}}
"""


class TopicParameters(BaseModel):
    """The options of the command, all of them with defaults."""

    name: str = Field(default="", description="The topic; the folder's name if not given.")
    partitions: int = Field(default=3, description="Number of partitions.")
    window: str = Field(default="hourly", description="minutely, hourly, daily, or a cron.")
    keep: str = Field(default="7d", description="How long the broker keeps what is proven.")


class QualityParameters(BaseModel):
    """The options of the command."""

    topic: str = Field(default="", description="The topic; the folder's name if not given.")
    column: str = Field(default="id", description="A column of its silver table.")


class _YamlScaffolder(dg.Scaffolder[Any]):
    """Writes one YAML file. ``dg`` appends to one that is there where the user says so."""

    @abstractmethod
    def document(self, request: dg.ScaffoldRequest[Any]) -> str:
        """The YAML document; writes what it needs beside it."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        if request.scaffold_format != "yaml":
            raise click.UsageError(
                f"{request.type_name} is declared in YAML: leave --format out, or write yaml"
            )
        text = self.document(request)
        if request.append:
            with request.target_path.open("a") as file:
                file.write(f"---\n{text}")
            return
        head = modeline(request.target_path, request.project_root)
        (request.target_path / DECLARATION).write_text(head + text)


def _folder(request: dg.ScaffoldRequest[Any]) -> Path:
    """The folder of the declaration: with ``append`` the target is the file in it."""
    return request.target_path.parent if request.append else request.target_path


def modeline(folder: Path, project: Path | None) -> str:
    """The line by which editors find the schema of the YAML; empty in a project without one."""
    if project is None or not (project / SCHEMA_FILE).is_file():
        return ""
    path = Path(os.path.relpath(project / SCHEMA_FILE, folder)).as_posix()
    return f"# yaml-language-server: $schema={path}\n"


class TopicScaffolder(_YamlScaffolder):
    """A topic, and the contract that its values are parsed by."""

    @classmethod
    def get_scaffold_params(cls) -> type[TopicParameters]:
        return TopicParameters

    def document(self, request: dg.ScaffoldRequest[Any]) -> str:
        params: TopicParameters = request.params
        folder = _folder(request)
        name = params.name or folder.name
        contract = f"{table_part(name)}.schema.json"
        if not (folder / contract).exists():
            (folder / contract).write_text(json.dumps(CONTRACT, indent=2) + "\n")
        return TOPIC.format(
            type=request.type_name,
            name=_scalar(name),
            partitions=params.partitions,
            contract=contract,
            window=_scalar(params.window),
            keep=_scalar(params.keep),
        )


class PlatformScaffolder(_YamlScaffolder):
    """The sensors and schedules of a code location, and the topic of the producers' evidence."""

    def document(self, request: dg.ScaffoldRequest[Any]) -> str:
        return PLATFORM.format(type=request.type_name)


class ResourceScaffolder(_YamlScaffolder):
    """The resource ``penstock`` with the settings of its home."""

    def document(self, request: dg.ScaffoldRequest[Any]) -> str:
        return RESOURCE.format(type=request.type_name)


class QualityScaffolder(_YamlScaffolder):
    """A suite with one expectation."""

    @classmethod
    def get_scaffold_params(cls) -> type[QualityParameters]:
        return QualityParameters

    def document(self, request: dg.ScaffoldRequest[Any]) -> str:
        params: QualityParameters = request.params
        folder = _folder(request)
        return QUALITY.format(
            type=request.type_name,
            topic=_scalar(params.topic or folder.name),
            column=_scalar(params.column),
        )


def _scalar(text: str) -> str:
    """A text as YAML reads it back: in quotes where it would be something else without."""
    try:
        plain = yaml.safe_load(f"[{text}]") == [text]
    except yaml.YAMLError:
        plain = False
    return text if plain else json.dumps(text)
