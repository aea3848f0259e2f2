"""``penstock retention plan | explain | apply``."""

from __future__ import annotations

from typing import Any

import click

from penstock_platform.cli.console import (
    CommandError,
    output_option,
    print_json,
    progress_console,
    settings,
)
from penstock_platform.cli.dagster_api import DagsterApiError
from penstock_platform.cli.project import Connections, DagsterApi
from penstock_platform.cli.retention_tables import print_applied, print_offset, print_plan
from penstock_platform.cli.topic import declarations
from penstock_platform.problems import meant
from penstock_platform.topics.model.declaration import TopicSpec, retention_key

APPLY_LABEL = "penstock/apply"
_APPLIES = """
query($path: [String!]!) { assetNodeOrError(assetKey: {path: $path}) { __typename
  ... on AssetNode { metadataEntries { label ... on BoolMetadataEntry { boolValue } } } } }
"""


@click.group()
def command() -> None:
    """What the retention sweep deletes from a topic's log, what it does not, and why."""


@command.command()
@click.argument("topic")
@output_option
def plan(topic: str, output: str) -> None:
    """Show what a sweep of TOPIC would delete now, per partition, and why the rest stays.

    Every window that is due is proven again for this, as the sweep does. Deletes nothing.
    """
    from penstock_platform.retention.documents import plan_document  # noqa: PLC0415 - pyiceberg

    penstock = Connections(settings())
    document = plan_document(_look(penstock, topic, output))
    if output == "json":
        print_json(document)
        return
    print_plan(document)


@command.command()
@click.argument("topic")
@click.argument("partition", type=click.IntRange(min=0))
@click.argument("offset", type=click.IntRange(min=0))
@output_option
def explain(topic: str, partition: int, offset: int, output: str) -> None:
    """Say whether a sweep of TOPIC would delete the record at OFFSET of PARTITION now, and why.

    A window that is due is proven again for this, as the sweep does. Deletes nothing.
    """
    from penstock_platform.retention.documents import offset_document  # noqa: PLC0415 - pyiceberg

    penstock = Connections(settings())
    _declared(penstock, topic)
    partitions = sorted(penstock.kafka.offsets(topic))
    if partition not in partitions:
        raise CommandError(
            f"topic {topic} has no partition {partition}",
            fix=f"its partitions are 0 to {partitions[-1]}",
        )
    document = offset_document(_look(penstock, topic, output), partition, offset)
    if output == "json":
        print_json(document)
        return
    print_offset(document)


@command.command()
@click.argument("topic")
@click.option("--execute", is_flag=True, help="Delete; without it the plan is shown.")
@output_option
def apply(topic: str, *, execute: bool, output: str) -> None:
    """Sweep TOPIC now: delete what the plan says. Without --execute the plan is only shown.

    The command does what a run of the job penstock_retention does for this topic, with the same
    record in the archive. It refuses where the PlatformComponent says retention: {apply: false}.
    """
    from penstock_platform.retention.documents import plan_document  # noqa: PLC0415 - pyiceberg
    from penstock_platform.retention.sweep import apply_sweep  # noqa: PLC0415 - dagster

    penstock = Connections(settings())
    if execute:
        _require_applying(penstock, topic)
    look = _look(penstock, topic, output)
    if execute:
        apply_sweep(penstock, look)
    document = plan_document(look) | {"executed": execute}
    if output == "json":
        print_json(document)
        return
    print_plan(document)
    print_applied(document)


def _look(penstock: Connections, topic: str, output: str) -> Any:
    from penstock_platform.retention.look import look_at  # noqa: PLC0415 - pyiceberg

    out = progress_console(output)
    return look_at(penstock, _declared(penstock, topic), lambda line: out.print(f"[dim]{line}[/]"))


def _declared(penstock: Connections, topic: str) -> TopicSpec:
    """The topic's declaration, which has its policy. Raises CommandError where there is none."""
    declared = declarations(penstock)
    if declared is None:
        raise CommandError(
            f"Dagster does not answer, so the policy that is declared for topic {topic} is not "
            "known",
            fix="start it (penstock up), and see: penstock status",
        )
    if topic not in declared:
        hint = meant(topic, declared).removeprefix("; ")
        raise CommandError(
            f"topic {topic} is not declared, so it has no policy and is never swept",
            fix=hint or "see: penstock topic list",
        )
    spec = declared[topic]
    if spec.land is None:
        raise CommandError(
            f"topic {topic} is not landed, so its broker deletes by the declared retention, and no "
            "sweep does",
            fix="add land: {} to have it proven and swept",
        )
    return spec


def _require_applying(penstock: Connections, topic: str) -> None:
    """Refuse where the loaded code location says that nothing is deleted, or does not sweep."""
    try:
        node = DagsterApi(penstock.settings, penstock.clock).query(
            _APPLIES, {"path": retention_key(topic)}
        )["assetNodeOrError"]
    except DagsterApiError as error:
        raise CommandError(
            f"Dagster does not say whether topic {topic} may be swept: {error}",
            fix="see: penstock status",
        ) from error
    applies = [
        entry["boolValue"]
        for entry in node.get("metadataEntries", ())
        if entry["label"] == APPLY_LABEL
    ]
    if not applies:
        raise CommandError(
            f"topic {topic} has no sweep in Dagster, so nothing may be deleted",
            fix="declare a PlatformComponent, and keep or max_bytes under the topic's retention",
        )
    if not applies[0]:
        raise CommandError(
            "the PlatformComponent says retention: {apply: false}, so nothing is deleted",
            fix="set apply: true there to delete",
        )
