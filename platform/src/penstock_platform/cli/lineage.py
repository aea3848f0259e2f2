"""``penstock lineage offset | row``."""

from __future__ import annotations

import click

from penstock_platform.cli.console import CommandError, output_option, print_json, settings
from penstock_platform.cli.incarnation import EVERY, chains_of, incarnation_option
from penstock_platform.cli.lineage_tables import print_offset, print_rows
from penstock_platform.cli.project import Connections, in_lake
from penstock_platform.lake.errors import MissingTableError

ROWS_SHOWN = 20
ROWS_SHOWN_MAX = 1_000


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


@command.command()
@click.argument("table")
@click.option("--where", required=True, metavar="EXPR", help="Which rows: total > 100 and id = 'a'")
@click.option(
    "--columns", default="", metavar="NAME,…", help="Further columns of the rows to show."
)
@click.option(
    "--limit",
    default=ROWS_SHOWN,
    show_default=True,
    type=click.IntRange(1, ROWS_SHOWN_MAX),
    help="How many rows at most.",
)
@output_option
def row(table: str, where: str, columns: str, limit: int, output: str) -> None:
    """Show from which offsets rows of TABLE come (lake.silver.orders, or silver.orders).

    TABLE is of bronze, silver or quarantine. EXPR compares columns with values, in the language of
    pyiceberg's row filters: =, !=, <, >, in, between, like 'a%', is null, and, or, not. Each row
    has its topic, partition, offset, window and state, and the receipt of its landing.
    """
    from penstock_platform.lineage.rows import rows_document  # noqa: PLC0415 - pyiceberg

    name = in_lake(table)
    shown = [column.strip() for column in columns.split(",") if column.strip()]
    try:
        document = rows_document(Connections(settings()), name, where, limit, shown)
    except MissingTableError as error:
        raise CommandError(str(error), fix="name one as lake.silver.orders") from error
    if output == "json":
        print_json(document)
        return
    print_rows(document, shown)
