"""`{{ env.X }}` in a declaration: resolved, or an error with its file, line and key."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest
from dagster.components.core.component_tree import ComponentTreeException

from penstock_platform.components.topic import TopicComponent
from penstock_platform.components.validation import first_real_error, problems_of_folder

TOPIC = "type: penstock_platform.TopicComponent\nattributes:\n"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with an empty declaration; its folder is the current one."""
    name = f"templates_{tmp_path.name}"
    package = tmp_path / "src" / name
    (package / "defs" / "orders").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text(
        f'[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "{name}"\n'
    )
    for folder in (package, package / "defs"):
        (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path / "src")
    monkeypatch.chdir(package)
    return package


def write(package: Path, text: str) -> None:
    (package / "defs" / "orders" / "defs.yaml").write_text(TOPIC + text)


def loaded(package: Path) -> TopicComponent:
    """The component, as Dagster loads it."""
    tree = dg.ComponentTree.for_project(package)
    (component,) = tree.get_all_components(of_type=TopicComponent)
    return component


def test_values_come_from_the_environment(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("STAGE", "prod"), ("PARTITIONS", "6"), ("SHARE", "0.5"), ("YES", "true")):
        monkeypatch.setenv(name, value)
    write(
        package,
        "  metadata: {name: 'orders.{{ env.STAGE }}', labels: {stage: '{{ env.STAGE }}'}}\n"
        "  spec: {partitions: '{{ env.PARTITIONS }}', replicas: \"{{ env('REPLICAS', 2) }}\"}\n"
        "  land: {window: \"{{ env.WINDOW or 'daily' }}\"}\n"
        "  retention: {keep: \"{{ env.KEEP | default('2h') }}\"}\n"
        "  audit: {accept_unaudited: '{{ env.YES }}'}\n",
    )
    (declared,) = problems_of_folder(package / "defs").topics
    spec = declared.spec
    assert (spec.name, spec.metadata.labels) == ("orders.prod", {"stage": "prod"})
    assert (spec.spec.partitions, spec.spec.replicas) == (6, 2)
    assert spec.land is not None
    assert spec.land.window == "daily"
    assert spec.model_dump()["retention"]["keep"] == "2h"
    assert spec.audit.accept_unaudited


def test_a_name_of_digits_stays_text(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPIC", "2024")
    write(package, "  metadata: {name: '{{ env.TOPIC }}'}\n")
    assert [d.spec.name for d in problems_of_folder(package / "defs").topics] == ["2024"]


def test_what_cannot_be_resolved_is_named_with_its_line(package: Path) -> None:
    write(
        package,
        "  metadata: {name: '{{ env.NOT_SET_HERE }}'}\n"
        "  description: 'about {{ env.NOT_SET_HERE }}'\n"
        "  owners: ['{{ nothing_known }}']\n"
        "  spec:\n"
        "    partitions: '{{ env.'\n"
        "    partitons: 3\n",
    )
    unset = "the environment variable NOT_SET_HERE is not set; set it, or give a default: "
    at = "defs/orders/defs.yaml"
    expected = [
        f"{at}:3: metadata.name: {unset}{{{{ env('NOT_SET_HERE', 'default') }}}}",
        f"{at}:4: description: {unset}{{{{ env('NOT_SET_HERE', 'default') }}}}",
        f"{at}:5: owners.0: 'nothing_known' is undefined; known are ",
        f"{at}:7: spec.partitions: not a template: ",
        f"{at}:8: spec.partitons is not a key here; did you mean partitions?",
    ]
    problems = problems_of_folder(package / "defs").problems
    assert len(problems) == len(expected), problems
    for problem, begin in zip(problems, expected, strict=True):
        assert problem.startswith(begin)
    with pytest.raises(ComponentTreeException) as raised:
        loaded(package)
    assert first_real_error(raised.value) == problems


def test_the_users_own_names(package: Path) -> None:
    """Dagster's ``template_vars_module``; what it defines is known once the project loads."""
    (package / "defs" / "orders" / "names.py").write_text(
        "import dagster as dg\n\n\n@dg.template_var\ndef configs():\n"
        "    return {'cleanup.policy': 'compact'}\n"
    )
    text = "  metadata: {name: orders}\n  spec: {configs: '{{ configs }}'}\n"
    write(package, text + "template_vars_module: .names\n")
    assert not problems_of_folder(package / "defs").problems
    assert loaded(package).spec.spec.configs == {"cleanup.policy": "compact"}
