"""`dg` sees the component types, scaffolds declarations that load, and knows every key of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import jsonschema
import pytest
import yaml
from dagster.components.component_scaffolding import scaffold_object
from dagster.components.core.package_entry import discover_entry_point_package_objects
from dagster.components.core.snapshot import get_package_entry_snap

import penstock_platform
from penstock_platform.components.validation import problems_of_folder
from penstock_platform.topics.yaml_schema import SCHEMA_FILE, TEMPLATE

DG = Path(sys.executable).parent / "dg"
TYPES = [
    f"penstock_platform.{name}"
    for name in sorted(penstock_platform.__all__)
    if name.endswith("Component")
]
PYPROJECT = """\
[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "shop"
"""
DEFINITIONS = """\
from pathlib import Path

import dagster as dg

defs = dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
"""
PLATFORM = "type: penstock_platform.PlatformComponent\nattributes: {}\n"


def dg_run(project: Path, *arguments: str) -> str:
    """What `dg` prints; fails with all that it prints where it does not end well."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PENSTOCK_", "PYTEST"))}
    done = subprocess.run(
        [DG, *arguments],
        cwd=project,
        env={**environment, "COLUMNS": "200", "PYTHONPATH": str(project / "src")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user project: the platform component, and no topic yet."""
    package = tmp_path / "src" / "shop"
    (package / "defs" / "platform").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    for folder in (package, package / "defs"):
        (folder / "__init__.py").touch()
    (package / "definitions.py").write_text(DEFINITIONS)
    (package / "defs" / "platform" / "defs.yaml").write_text(PLATFORM)
    return tmp_path


def test_a_scaffolded_topic_loads(project: Path) -> None:
    dg_run(project, "scaffold", "defs", "penstock_platform.TopicComponent", "orders")
    folder = project / "src" / "shop" / "defs" / "orders"
    assert sorted(p.name for p in folder.iterdir()) == ["defs.yaml", "orders.schema.json"]
    found = json.loads(dg_run(project, "list", "defs", "--json"))
    keys = {asset["asset_key"] for asset in found["assets"]}
    assert {"local/topic/orders", "lake/bronze/orders", "lake/silver/orders"} <= keys


def test_the_component_types_are_listed() -> None:
    """As `dg list components` reads them: by the entry point of the distribution."""
    found = {
        key.to_typename(): get_package_entry_snap(key, item)
        for key, item in discover_entry_point_package_objects().items()
        if key.namespace == "penstock_platform"
    }
    assert sorted(found) == TYPES
    for name, snap in found.items():
        assert snap.summary, name
        assert snap.owners, name
        assert snap.tags, name
        assert snap.produces, name


def schema_of(name: str) -> dict[str, Any]:
    model = getattr(penstock_platform, name.rpartition(".")[2]).get_model_cls()
    found: dict[str, Any] = model.model_json_schema()
    return found


def keys_of(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """(path, schema) of every key of a document."""
    if isinstance(node, dict):
        properties = node.get("properties")
        for name, below in (properties or {}).items():
            yield f"{path}.{name}", below
            yield from keys_of(below, f"{path}.{name}")
        for part in (*node.get("anyOf", ()), node.get("items")):
            yield from keys_of(part, path)


@pytest.mark.parametrize("name", TYPES)
def test_every_key_is_described(name: str) -> None:
    schema = schema_of(name)
    assert "$ref" not in json.dumps(schema), "it is put into schemas of others"
    assert schema["description"]
    keys = dict(keys_of(schema))
    assert keys
    bare = [path for path, below in keys.items() if not below.get("description")]
    assert not bare


def test_the_schema_takes_what_the_component_takes() -> None:
    check = jsonschema.Draft202012Validator(schema_of("penstock_platform.TopicComponent")).is_valid
    good = {
        "metadata": {"name": "{{ env.TOPIC }}"},
        "spec": {"partitions": "{{ env.PARTITIONS }}", "configs": {"max.message.bytes": 2000000}},
        "retention": {"keep": "7d", "max_bytes": None},
        "schema": {"file": "a.json"},
        "land": {},
        "audit": {"severity": "{{ env.SEVERITY }}"},
    }
    assert check(good)
    assert not check({"metadata": {"name": "a"}, "spec": {"partitions": "six"}})
    assert not check({"metadata": {"name": "a"}, "spec": {"partitons": 6}})
    assert not check({"metadata": {"name": "a"}, "audit": {"severity": "LOUD"}})
    assert not check({"spec": {}})
    assert TEMPLATE["type"] == "string"


def scaffold(project: Path, name: str, folder: str, parameters: dict[str, Any]) -> Path:
    path = project / "src" / "shop" / "defs" / folder
    scaffold_object(path, name, json.dumps(parameters), "yaml", project)
    return path


@pytest.mark.parametrize("name", ["orders", "shop.orders", "2024", "yes", "a: b"])
def test_names_of_scaffolded_topics(project: Path, name: str) -> None:
    folder = scaffold(project, "penstock_platform.TopicComponent", "x", {"name": name})
    document = yaml.safe_load((folder / "defs.yaml").read_text())
    assert document["attributes"]["metadata"]["name"] == name
    found = problems_of_folder(folder.parent)
    if name == "a: b":
        assert "topic names have 1 to 249 of the characters" in "".join(found.problems)
    else:
        assert not found.problems
        assert [declared.spec.name for declared in found.topics] == [name]


def test_a_scaffolded_suite_and_platform_load(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scaffold(project, "penstock_platform.TopicComponent", "orders", {"window": "*/5 * * * *"})
    folder = scaffold(project, "penstock_platform.PlatformComponent", "platform", {})
    assert not problems_of_folder(folder.parent).problems
    document = folder.parent / "orders" / "defs.yaml"
    scaffold_object(document, "penstock_platform.QualityComponent", None, "yaml", project, True)
    found = problems_of_folder(folder.parent)
    assert not found.problems
    assert sorted(d.spec.name for d in found.topics) == ["__penstock_audit", "orders"]
    topic, suite = yaml.safe_load_all(document.read_text())
    assert suite["attributes"]["topic"] == topic["attributes"]["metadata"]["name"] == "orders"
    monkeypatch.syspath_prepend(project / "src")
    defs = dg.load_from_defs_folder(path_within_project=project)
    dg.Definitions.validate_loadable(defs)


def test_what_is_scaffolded_names_the_schema_of_the_project(project: Path) -> None:
    (project / SCHEMA_FILE).parent.mkdir()
    (project / SCHEMA_FILE).write_text("{}")
    folder = scaffold(project, "penstock_platform.TopicComponent", "shop/orders", {})
    line = (folder / "defs.yaml").read_text().splitlines()[0]
    assert line.startswith("# yaml-language-server: $schema=")
    assert (folder / line.partition("=")[2]).resolve() == (project / SCHEMA_FILE).resolve()
