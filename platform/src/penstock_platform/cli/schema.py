"""``penstock schema``."""

from __future__ import annotations

import click

from penstock_platform.cli.console import output_option, print_json, settings
from penstock_platform.topics.yaml_schema import SCHEMA_FILE


@click.command()
@output_option
def command(output: str) -> None:
    """Write schema/defs.schema.json: the JSON schema of this project's declarations.

    Editors use it to complete and check YAML files whose first line names it; files made by
    `penstock init` and `dg scaffold defs` do. Run it again after an upgrade. With -o json the
    schema is printed, and no file is written.
    """
    from penstock_platform.components.document_schema import (  # noqa: PLC0415 - imports Dagster
        document_schema,
        schema_text,
    )

    if output == "json":
        print_json(document_schema())
        return
    file = settings().project / SCHEMA_FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(schema_text())
    click.echo(f"  {file}")
