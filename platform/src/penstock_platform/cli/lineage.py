"""``penstock lineage offset``."""

from __future__ import annotations

import click

from penstock_platform.cli.console import CommandError, output_option, print_json, settings
from penstock_platform.cli.incarnation import EVERY, chains_of, incarnation_option
from penstock_platform.cli.lineage_tables import print_offset
from penstock_platform.cli.project import Connections


@click.group()
def command() -> None:
    """From an offset to its window and rows, and from a row to its offset. Without Spark."""


@command.command()
@click.argument("topic")
@click.argument("partition", type=click.IntRange(min=0))
@click.argument("offset", type=click.IntRange(min=0))
@incarnation_option
@output_option
def offset(topic: str, partition: int, offset: int, incarnation: str | None, output: str) -> None:
    """Show where OFFSET of PARTITION of TOPIC is: in the log, its window, and the tables.

    Names the window and its state, the receipts of each table, and whether the row is there now:
    in bronze, and in silver or quarantine (with the reason). If the log was cut and grew again,
    an offset is in several windows.
    """
    from penstock_platform.lineage.offsets import offset_document  # noqa: PLC0415 - pyiceberg

    penstock = Connections(settings())
    if incarnation == EVERY:
        raise CommandError("an offset belongs to one topic id", fix="--incarnation <topic id>")
    ref = chains_of(penstock, topic, incarnation)[0]
    document = offset_document(penstock, ref, partition, offset)
    if output == "json":
        print_json(document)
        return
    print_offset(document)
