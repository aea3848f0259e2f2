"""A further topic by YAML alone; and what a bad declaration is answered with."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster.components.testing.utils import DefsFolderSandbox, create_defs_folder_sandbox

CONTRACT = """{
  "title": "A parcel on its way",
  "type": "object",
  "properties": {
    "id": {"type": "string"},
    "weight": {"type": "number", "minimum": 0},
    "seen_at": {"type": "string", "format": "date-time"}
  },
  "required": ["id", "seen_at"]
}
"""
DECLARATION = """\
type: penstock_platform.TopicComponent
attributes:
  metadata: {name: post.parcels, labels: {domain: post}}
  description: Parcels as the post's scanners see them.
  owners: ["team:post"]
  spec: {partitions: 4, configs: {max.message.bytes: 2000000}}
  schema: {format: json, file: parcels.schema.json}
  land: {window: hourly}
  retention: {keep: 7d}
"""
PLATFORM = """\
type: penstock_platform.PlatformComponent
attributes:
  reverify: {cron: "*/5 * * * *", windows: 4}
"""


class Project:
    """A user's own project: a ``defs`` folder, loaded as Dagster loads it."""

    def __init__(self, sandbox: DefsFolderSandbox) -> None:
        self._sandbox = sandbox

    def write(self, file: str, text: str) -> Path:
        path = self._sandbox.defs_folder_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def load(self) -> dg.Definitions:
        with self._sandbox.build_all_defs() as defs:
            dg.Definitions.validate_loadable(defs)
            return defs

    def refusal(self) -> str:
        """The whole error when it does not load."""
        try:
            self.load()
        except Exception as error:
            return "".join(traceback.format_exception(error))
        raise AssertionError("it loaded")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    with create_defs_folder_sandbox() as sandbox:
        yield Project(sandbox)


def keys(defs: dg.Definitions) -> set[str]:
    return {k.to_user_string() for k in defs.resolve_asset_graph().get_all_asset_keys()}


def test_a_topic_its_contract_and_its_silver_by_yaml_alone(project: Project) -> None:
    project.write("post/defs.yaml", DECLARATION)
    project.write("post/parcels.schema.json", CONTRACT)
    project.write("platform/defs.yaml", PLATFORM)
    defs = project.load()
    assert keys(defs) == {
        "local/topic/post.parcels",
        "lake/bronze/post_parcels",
        "lake/silver/post_parcels",
        "books/post.parcels",
        "retention/post.parcels",
        "ops/reverification",
        "ops/snapshots",
        "ops/orphan_files",
    }
    graph = defs.resolve_asset_graph()
    silver = graph.get(dg.AssetKey(["lake", "silver", "post_parcels"]))
    assert silver.group_name == "silver"
    assert silver.tags["domain"] == "post"
    assert "A parcel on its way" in (silver.description or "")
    assert silver.partitions_def.cron_schedule == "0 * * * *"  # type: ignore[union-attr]
    topic = graph.get(dg.AssetKey(["local", "topic", "post.parcels"]))
    assert topic.owners == ["team:post"]
    declaration: Any = topic.metadata["penstock/declaration"]
    assert declaration.value["retention"] == {"keep": "7d", "hold_for": []}
    assert defs.resolve_job_def("penstock_land_post_parcels").partitions_def is not None


def test_a_topic_without_landing_is_a_topic_alone(project: Project) -> None:
    project.write(
        "a/defs.yaml",
        "type: penstock_platform.TopicComponent\nattributes:\n  metadata: {name: plain}\n",
    )
    project.write("platform/defs.yaml", PLATFORM)
    assert keys(project.load()) == {"local/topic/plain"}


BAD = [
    # (what is wrong: old text, new text), line, what is said
    ("partitions: 4", "partitions: four", 6, "spec.partitions"),
    ("keep: 7d", "keep: a week", 9, "write a number with its unit"),
    ("window: hourly", "window: now and then", 8, "neither one of minutely, hourly, daily"),
    ("land: {window: hourly}", "landing: {window: hourly}", 8, "did you mean land?"),
    ("max.message.bytes: 2000000", "retention.ms: 5", 6, "retention"),
    ('["team:post"]', '["the post"]', 5, "neither team:name nor an e-mail address"),
    ("parcels.schema.json", "parcel.schema.json", 7, "cannot read"),
]


@pytest.mark.parametrize(("old", "new", "line", "said"), BAD, ids=[b[1] for b in BAD])
def test_a_bad_declaration_is_reported_with_file_and_line(
    project: Project, old: str, new: str, line: int, said: str
) -> None:
    assert old in DECLARATION
    project.write("post/parcels.schema.json", CONTRACT)
    path = project.write("post/defs.yaml", DECLARATION.replace(old, new))
    error = project.refusal()
    assert f"{path}:{line}: " in error
    assert said in error
    assert "DeclarationError" in error


def test_a_bad_contract_is_reported_with_file_and_line(project: Project) -> None:
    project.write("post/defs.yaml", DECLARATION)
    path = project.write(
        "post/parcels.schema.json", CONTRACT.replace('"type": "number"', '"type": "numeral"')
    )
    error = project.refusal()
    assert f"{path}:6: " in error
    assert "numeral" in error


def test_a_further_document_in_the_file_has_its_own_lines(project: Project) -> None:
    project.write("post/parcels.schema.json", CONTRACT)
    path = project.write(
        "post/defs.yaml",
        DECLARATION
        + "---\ntype: penstock_platform.QualityComponent\nattributes:\n  topic: post.parcels\n"
        "  expectations:\n    - type: exepct_column_values_to_not_be_null\n",
    )
    assert f"{path}:15: expectations.0.type" in project.refusal()


def test_two_topics_of_one_table_are_refused(project: Project) -> None:
    for folder, name in (("a", "shop.orders"), ("b", "shop-orders")):
        project.write(
            f"{folder}/defs.yaml",
            f"type: penstock_platform.TopicComponent\nattributes:\n  metadata: {{name: {name}}}\n"
            "  land: {}\n",
        )
    project.write("platform/defs.yaml", PLATFORM)
    error = project.refusal()
    assert "would both land in lake.bronze.shop_orders" in error
    assert "a/defs.yaml:2" in error


def test_a_bad_schedule_is_reported_with_file_and_line(project: Project) -> None:
    path = project.write("platform/defs.yaml", PLATFORM.replace("*/5 * * * *", "every day"))
    error = project.refusal()
    assert f"{path}:3: reverify.cron: 'every day' is not a cron of five fields" in error


def test_quality_is_one_check_an_expectation(project: Project) -> None:
    project.write("post/defs.yaml", DECLARATION)
    project.write("post/parcels.schema.json", CONTRACT)
    project.write("platform/defs.yaml", PLATFORM)
    project.write(
        "quality/defs.yaml",
        "type: penstock_platform.QualityComponent\nattributes:\n  topic: post.parcels\n"
        "  expectations:\n"
        "    - {type: expect_column_values_to_not_be_null, kwargs: {column: id}}\n"
        "    - {type: expect_column_values_to_be_between,"
        " kwargs: {column: weight, max_value: 50}, severity: warning}\n",
    )
    graph = project.load().resolve_asset_graph()
    silver = dg.AssetKey(["lake", "silver", "post_parcels"])
    names = {k.name for k in graph.get_check_keys_for_assets({silver})}
    assert names == {
        "parsed_plus_quarantined_equals_landed",
        "contract",
        "column_values_to_not_be_null__id",
        "column_values_to_be_between__weight",
    }
