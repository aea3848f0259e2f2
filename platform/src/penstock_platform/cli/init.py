"""``penstock init``: a new project, from the files under ``template/``.

It has the layout of `create-dagster project`, so that all of `dg` works in it. Each template is
the file that it creates, with placeholders ``${package}`` and ``${name}``. Its name ends with
``.tmpl``, so that tools do not read it as part of this code.
"""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template

import click

from penstock_platform.cli.console import CommandError, output_option, print_json
from penstock_platform.topics.yaml_schema import SCHEMA_FILE

SUFFIX = ".tmpl"
PACKAGE_FOLDER = "package"


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@click.option("--package", help="Name of its Python package; default: from the directory's name.")
@output_option
def command(directory: Path, package: str | None, output: str) -> None:
    """Create a project in DIRECTORY: a topic, its contract, a mart, a test.

    Existing files are not changed: a directory that has any of these files is refused.
    """
    name = directory.absolute().name
    package = package or package_name(name)
    if not package.isidentifier() or keyword.iskeyword(package):
        raise click.BadParameter(
            f"{package!r} cannot name a Python package", param_hint="--package"
        )
    made = create(directory, name, package)
    if output == "json":
        print_json(
            {"directory": directory, "package": package, "files": [str(path) for path in made]}
        )
        return
    for path in made:
        click.echo(f"  {path}")
    where = "" if directory.absolute() == Path.cwd() else f"cd {directory} && "
    click.echo(f"next: {where}penstock up, then: cat README.md")


def package_name(name: str) -> str:
    """A package's name for a project's: ``My Shop`` → ``my_shop_pipelines``. The suffix keeps it
    apart from the standard library's modules and from installed ones."""
    stem = re.sub(r"[^0-9a-z]+", "_", name.lower()).strip("_") or "my"
    stem = f"p{stem}" if stem[0].isdigit() else stem
    return stem if stem.endswith("_pipelines") else f"{stem}_pipelines"


def create(directory: Path, name: str, package: str) -> list[Path]:
    """Write the project; returns the files, relative to ``directory``."""
    files = dict(render(name, package))
    there = sorted(str(path) for path in files if (directory / path).exists())
    if there:
        raise CommandError(
            f"{directory} holds {', '.join(there[:3])} already and is left as it is",
            fix="name another directory",
        )
    for path, text in files.items():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return sorted(files)


def render(name: str, package: str) -> Iterator[tuple[Path, str]]:
    """Every file of the project with its text."""
    from penstock_platform.components.document_schema import schema_text  # noqa: PLC0415 - Dagster

    yield SCHEMA_FILE, schema_text()
    values = {
        "name": name,
        "project": package.removesuffix("_pipelines").replace("_", "-"),
        "package": package,
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
    }
    root = resources.files("penstock_platform.cli") / "template"
    for parts, file in _templates(root, ()):
        place = Path(*(package if part == PACKAGE_FOLDER else part for part in parts))
        text = Template(file.read_text()).substitute(values)
        yield place.with_name(place.name.removesuffix(SUFFIX)), text


def _templates(
    folder: Traversable, parts: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _templates(entry, (*parts, entry.name))
        elif entry.name.endswith(SUFFIX):
            yield (*parts, entry.name), entry
