"""``penstock group list | describe``."""

from __future__ import annotations

import click

from penstock_platform.cli.console import output_option, print_json, settings
from penstock_platform.cli.group_documents import look_document, summary_document
from penstock_platform.cli.group_tables import print_groups, print_look
from penstock_platform.cli.project import Connections
from penstock_platform.groups.look import look_at, summaries


@click.group()
def command() -> None:
    """Consumer groups of the cluster: members, committed offsets, lag."""


@command.command("list")
@output_option
def list_groups(output: str) -> None:
    """List the consumer groups of the cluster.

    The lag is the number of messages that a group can still read, over all partitions for which
    it has committed an offset.
    """
    rows = [summary_document(found) for found in summaries(Connections(settings()))]
    if output == "json":
        print_json(rows)
        return
    print_groups(rows)


@command.command()
@click.argument("group")
@click.option("--topic", default=None, help="Only this topic.")
@output_option
def describe(group: str, topic: str | None, output: str) -> None:
    """Show one GROUP: per partition the committed offset, the log, the lag and the member.

    The lag is given in messages and in seconds: the age of the oldest record that the group has
    not read. A committed offset that is not in the log is reported.
    """
    document = look_document(look_at(Connections(settings()), group, topic))
    if output == "json":
        print_json(document)
        return
    print_look(document)
