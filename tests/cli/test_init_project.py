"""`penstock init` makes a project that loads unchanged, wherever it is put."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import click
import jsonschema
import pytest
import yaml

from penstock_platform.cli import main as cli_main
from penstock_platform.cli.errors import CommandError
from penstock_platform.cli.init import create, package_name, render
from penstock_platform.settings import Settings


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("shop", "shop_pipelines"),
        ("My Shop", "my_shop_pipelines"),
        ("2024-data", "p2024_data_pipelines"),
        ("platform", "platform_pipelines"),
        ("shop_pipelines", "shop_pipelines"),
        ("ü", "my_pipelines"),
    ],
)
def test_package_names(name: str, package: str) -> None:
    assert package_name(name) == package
    assert package.isidentifier()


def run(project: Path, *command: str | Path) -> str:
    """What a command prints in the project; fails with all of it where it does not end well."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PENSTOCK_", "PYTEST"))}
    done = subprocess.run(
        command,
        cwd=project,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = tmp_path_factory.mktemp("init") / "My Shop"
    assert cli_main.run(["init", str(project)]) == 0
    return project


def test_its_own_test_passes(shop: Path) -> None:
    assert "python -m pytest" in commands(shop), "as README says"
    out = run(shop, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert "2 passed" in out


@pytest.fixture
def dg(monkeypatch: pytest.MonkeyPatch, shop: Path) -> Path:
    """`dg`, for which the project is as good as installed: its ``src`` is on the path."""
    monkeypatch.setenv("PYTHONPATH", str(shop / "src"))
    monkeypatch.setenv("COLUMNS", "200")
    return Path(sys.executable).parent / "dg"


def test_dg_checks_it(shop: Path, dg: Path) -> None:
    assert {"dg check yaml", "dg check defs"} <= set(commands(shop))
    assert "All component YAML validated successfully" in run(shop, dg, "check", "defs")


def test_dg_lists_it(shop: Path, dg: Path) -> None:
    assert "dg list defs" in commands(shop)
    found = json.loads(run(shop, dg, "list", "defs", "--json"))
    keys = {asset["asset_key"] for asset in found["assets"]}
    assert {"local/topic/orders", "lake/silver/orders", "lake/marts/revenue"} <= keys


def commands(project: Path) -> list[str]:
    """The commands of README, as they are written there."""
    blocks = re.findall(r"```sh\n(.*?)```", (project / "README.md").read_text(), re.DOTALL)
    return [line.partition("  #")[0].strip() for line in "".join(blocks).splitlines()]


def test_the_readme_names_commands_and_files_that_are_there(shop: Path) -> None:
    lines = [line.split() for line in commands(shop)]
    assert len(lines) >= 8
    for first, second, *rest in lines:
        assert first in ("penstock", "dg", "python")
        if first == "penstock":
            assert second in cli_main.cli.table
            command = importlib.import_module(cli_main.cli.table[second][0]).command
            command.make_parser(click.Context(command)).parse_args(rest)
    text = (shop / "README.md").read_text()
    for path in re.findall(r"`((?:src|tests|schema|samples|\.github)/[^`]+)`", text):
        assert list(shop.glob(path.rstrip("/"))), path
    (sample,) = re.findall(r"--file (\S+)", text)
    assert (shop / sample).is_file()


def test_a_build_server_runs_what_the_readme_says(shop: Path) -> None:
    workflow = yaml.safe_load((shop / ".github" / "workflows" / "test.yml").read_text())
    steps = [step["run"] for step in workflow["jobs"]["test"]["steps"] if "run" in step]
    checked = [step for step in steps if not step.startswith("python -m pip")]
    assert set(checked) <= set(commands(shop))
    assert "python -m pytest" in checked


def test_it_is_laid_out_as_dg_lays_projects_out(shop: Path) -> None:
    document = tomllib.loads((shop / "pyproject.toml").read_text())
    project = document["tool"]["dg"]["project"]
    package = shop / "src" / project["root_module"]
    for part in ("__init__.py", "definitions.py", "defs/__init__.py", "components/__init__.py"):
        assert (package / part).is_file()
    assert document["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == [
        f"src/{package.name}"
    ]
    dev = set(document["dependency-groups"]["dev"])
    assert dev == {"dagster-dg-cli", "dagster-webserver", "penstock-services", "pytest"}


def test_its_wheel_holds_declarations_and_contracts(shop: Path, tmp_path: Path) -> None:
    run(shop, sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for file in ("definitions.py", "defs/orders/defs.yaml", "defs/orders/orders.schema.json"):
        assert f"my_shop_pipelines/{file}" in names


def test_editors_find_the_schema_of_its_declarations(shop: Path) -> None:
    schema = json.loads((shop / "schema" / "defs.schema.json").read_text())
    checker = jsonschema.Draft7Validator(schema)
    files = sorted(shop.glob("src/*/defs/*/defs.yaml"))
    assert len(files) == 2
    for file in files:
        text = file.read_text()
        path = text.splitlines()[0].removeprefix("# yaml-language-server: $schema=")
        assert (file.parent / path).resolve() == shop / "schema" / "defs.schema.json"
        for document in yaml.safe_load_all(text):
            checker.validate(document)
    document["attributes"]["reverfy"] = {}
    assert "reverfy" in str(next(checker.iter_errors(document)))
    assert checker.is_valid({"type": "another.Component", "attributes": {"x": 1}})


def test_the_schema_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli_main.run(["schema"]) == 0
    written = json.loads((tmp_path / "schema" / "defs.schema.json").read_text())
    capsys.readouterr()
    assert cli_main.run(["schema", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == written


def test_the_module_is_found_under_src_or_beside_the_settings(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text('[dagster]\nmodule = "shop.definitions"\n')
    settings = Settings.load(tmp_path / ".penstock", {})
    (tmp_path / "src").mkdir()
    assert settings.code_folder == tmp_path
    (tmp_path / "src" / "shop.py").touch()
    assert settings.code_folder == tmp_path / "src"
    (tmp_path / "src" / "shop.py").unlink()
    (tmp_path / "src" / "shop").mkdir()
    assert settings.code_folder == tmp_path / "src"


def test_its_settings_are_read(tmp_path: Path) -> None:
    create(tmp_path / "shop", "shop", "shop_pipelines")
    settings = Settings.load(tmp_path / "shop" / ".penstock", {})
    assert settings.dagster.module == "shop_pipelines.definitions"
    assert settings.kafka.bootstrap_servers == ""
    pyproject = tomllib.loads((tmp_path / "shop" / "pyproject.toml").read_text())
    assert pyproject["project"]["name"] == "shop"


def test_what_is_commented_out_is_a_setting(tmp_path: Path) -> None:
    text = dict(render("shop", "shop_pipelines"))[Path("penstock.toml")]
    lines = [line.removeprefix("# ") for line in text.splitlines()]
    settings = [line for line in lines if re.match(r'\[[\w.]+\]($| +#)|[\w."]+ = ', line)]
    file = tmp_path / "penstock.toml"
    file.write_text("\n".join(line.replace("…", "x") for line in settings))
    loaded = Settings.load(tmp_path / ".penstock", {})
    assert loaded.kafka.properties["sasl.mechanism"] == "SCRAM-SHA-512"
    assert loaded.s3.endpoint.startswith("https://")


def test_existing_files_are_left_unchanged(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(CommandError, match=r"README\.md"):
        create(tmp_path, "shop", "shop_pipelines")
    assert (tmp_path / "README.md").read_text() == "mine"
    assert [p.name for p in tmp_path.iterdir()] == ["README.md"]


@pytest.mark.parametrize("package", ["not-a-name", "class", "1st"])
def test_a_package_that_python_would_refuse(tmp_path: Path, package: str) -> None:
    assert cli_main.run(["init", str(tmp_path / "x"), "--package", package]) == 2
    assert not (tmp_path / "x").exists()
