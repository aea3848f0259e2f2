"""The code location: it loads, and its graph is the one in ``asset_graph.golden``.

After a wanted change: ``PENSTOCK_REWRITE_GOLDENS=1 pytest tests/pipelines/test_asset_graph.py``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster._core.definitions.assets.graph.asset_graph import AssetGraph

ROOT = Path(__file__).resolve().parent.parent.parent
GOLDEN = Path(__file__).with_name("asset_graph.golden")


@pytest.fixture(scope="module")
def defs(tmp_path_factory: pytest.TempPathFactory) -> dg.Definitions:
    """The pipelines' definitions, loaded where no home is."""
    os.environ["PENSTOCK_HOME"] = str(tmp_path_factory.mktemp("nowhere") / "home")
    try:
        from penstock_pipelines.definitions import defs  # noqa: PLC0415 - sees the home above
    finally:
        del os.environ["PENSTOCK_HOME"]
    return defs


@pytest.fixture(scope="module")
def graph(defs: dg.Definitions) -> AssetGraph:
    return defs.resolve_asset_graph()


def described(graph: AssetGraph, defs: dg.Definitions) -> str:
    lines: list[str] = []
    for key in sorted(graph.get_all_asset_keys(), key=lambda k: k.to_user_string()):
        node = graph.get(key)
        parents = ", ".join(sorted(k.to_user_string() for k in node.parent_keys)) or "nothing"
        owners = ", ".join(node.owners)
        kinds = ", ".join(sorted(t.removeprefix("dagster/kind/") for t in node.tags if "kind" in t))
        partitions = node.partitions_def.cron_schedule if node.partitions_def else "none"  # type: ignore[attr-defined]
        lines.append(f"{key.to_user_string()}  [{node.group_name}]")
        lines.append(f"    from {parents}")
        lines.append(f"    partitions {partitions}; kinds {kinds}; owners {owners}")
        for check in sorted(graph.get_check_keys_for_assets({key}), key=lambda c: c.name):
            spec = graph.get_check_spec(check)
            marks = " blocking" if spec.blocking else ""
            marks += " by window" if spec.partitions_def else ""
            lines.append(f"    check {check.name}{marks}")
    repository = defs.get_repository_def()
    lines.append(f"jobs {', '.join(sorted(j for j in repository.job_names if j[0] != '_'))}")
    lines.append(f"sensors {', '.join(sorted(s.name for s in repository.sensor_defs))}")
    schedules = (f"{s.name} ({s.cron_schedule})" for s in repository.schedule_defs)
    lines.append(f"schedules {', '.join(sorted(schedules))}")
    return "\n".join(lines) + "\n"


def test_the_asset_graph(graph: AssetGraph, defs: dg.Definitions) -> None:
    found = described(graph, defs)
    if os.environ.get("PENSTOCK_REWRITE_GOLDENS"):
        GOLDEN.write_text(found)
    assert found == GOLDEN.read_text(), "rewrite it if this is wanted: see this file's first lines"


def test_definitions_are_valid(defs: dg.Definitions) -> None:
    dg.Definitions.validate_loadable(defs)


def test_every_asset_says_what_it_is(graph: AssetGraph) -> None:
    for key in graph.get_all_asset_keys():
        node = graph.get(key)
        assert node.description, f"{key.to_user_string()} has no description"
        assert node.group_name != "default", f"{key.to_user_string()} is in no group"


def test_the_blocking_checks_are_the_lakes(graph: AssetGraph) -> None:
    blocking = {k.name for k in graph.asset_check_keys if graph.get_check_spec(k).blocking}
    assert blocking == {"stored_equals_landed", "parsed_plus_quarantined_equals_landed"}


def test_the_landing_job_runs_no_check_of_others(defs: dg.Definitions) -> None:
    """Great Expectations' suite hangs on silver, and stays off the landing's critical path."""
    job = defs.resolve_job_def("penstock_land_flights")
    names = {key.name for key in job.asset_layer.asset_graph.asset_check_keys}
    assert names == {
        "stored_equals_landed",
        "parsed_plus_quarantined_equals_landed",
        "produced_equals_stored",
        "contract",
    }


def test_the_definitions_stay_small() -> None:
    file = ROOT / "pipelines" / "src" / "penstock_pipelines" / "definitions.py"
    assert len(file.read_text().splitlines()) <= 60


def test_the_workspace_names_the_definitions() -> None:
    workspace = yaml.safe_load((ROOT / "workspace.yaml").read_text())
    (location,) = workspace["load_from"]
    assert location["python_module"]["module_name"] == "penstock_pipelines.definitions"


def test_importing_the_platform_stays_cheap() -> None:
    """The command line, and Spark's workers, import the package without Dagster."""
    code = (
        "import sys, penstock_platform, penstock_platform.cli.window, penstock_platform.cli.topic;"
        "heavy = ('dagster', 'pyspark', 'pyiceberg', 'pandas');"
        "print(sorted(m for m in heavy if m in sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
