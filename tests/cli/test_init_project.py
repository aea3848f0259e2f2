"""`penstock init` makes a project that loads as it stands, wherever it is put."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

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


def test_its_own_test_passes(tmp_path: Path) -> None:
    project = tmp_path / "My Shop"
    assert cli_main.run(["init", str(project)]) == 0
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PENSTOCK_", "PYTEST"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


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


def test_what_is_there_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(CommandError, match=r"README\.md"):
        create(tmp_path, "shop", "shop_pipelines")
    assert (tmp_path / "README.md").read_text() == "mine"
    assert [p.name for p in tmp_path.iterdir()] == ["README.md"]


@pytest.mark.parametrize("package", ["not-a-name", "class", "1st"])
def test_a_package_that_python_would_refuse(tmp_path: Path, package: str) -> None:
    assert cli_main.run(["init", str(tmp_path / "x"), "--package", package]) == 2
    assert not (tmp_path / "x").exists()
