"""``penstock topic list | describe``."""

from __future__ import annotations

import json
from typing import Any

import click

from penstock_platform.cli.console import (
    CommandError,
    cell,
    console,
    output_option,
    print_json,
    settings,
    table,
)
from penstock_platform.cli.dagster_api import DagsterApiError
from penstock_platform.cli.project import Connections, DagsterApi
from penstock_platform.kafka.errors import UnknownTopicError
from penstock_platform.kafka.model import TopicRef
from penstock_platform.topics.apply import drift
from penstock_platform.topics.model.declaration import (
    TopicError,
    TopicSpec,
    consumer_group,
    parse_topic,
)
from penstock_platform.windows.store import WindowStore

DECLARATION_LABEL = "penstock/declaration"
_DECLARATIONS = """
query { assetNodes { assetKey { path } metadataEntries { label
  ... on JsonMetadataEntry { jsonString } } } }
"""


@click.group()
def command() -> None:
    """Topics of the cluster and of the declarations, with their progress."""


@command.command("list")
@click.option("--all", "everything", is_flag=True, help="Also internal topics (__…).")
@output_option
def list_topics(everything: bool, output: str) -> None:
    """List every topic of the cluster, and every declared topic."""
    penstock = Connections(settings())
    declared = declarations(penstock)
    present = set(penstock.kafka.topics())
    names = sorted(present | set(declared or {}))
    rows = [
        summary(penstock, name, name in present, declared)
        for name in names
        if everything or not name.startswith("__") or name in (declared or {})
    ]
    if output == "json":
        print_json(rows)
        return
    columns = ("topic", "partitions", "records", "end", "windows", "complete_through", "declared")
    shown = [[cell(row[column]) for column in columns] for row in rows]
    console().print(table(columns, shown, right="partitions,records,end,windows"))
    if declared is None:
        console().print("[dim]Dagster does not answer, so declarations are not known[/]")


def summary(
    penstock: Connections, name: str, present: bool, declared: dict[str, TopicSpec] | None
) -> dict[str, Any]:
    """One topic in a line. ``declared`` is None where Dagster could not be asked."""
    row: dict[str, Any] = {
        "topic": name,
        "exists": present,
        "declared": None if declared is None else name in declared,
        "partitions": None,
        "records": None,
        "end": None,
        "windows": None,
        "complete_through": None,
    }
    if not present:
        return row
    offsets = penstock.kafka.offsets(name)
    newest = WindowStore.of(penstock).newest(penstock.kafka.ref(name))
    return row | {
        "partitions": len(offsets),
        "records": sum(o.high_watermark - o.log_start for o in offsets.values()),
        "end": sum(o.high_watermark for o in offsets.values()),
        "windows": newest.sequence + 1 if newest is not None else 0,
        "complete_through": newest.closed_at if newest is not None else None,
    }


@command.command()
@click.argument("topic")
@output_option
def describe(topic: str, output: str) -> None:
    """Show one TOPIC: offsets, configs, drift, windows, landed group."""
    penstock = Connections(settings())
    document = details(penstock, topic)
    if output == "json":
        print_json(document)
        return
    out = console()
    out.print(f"[bold]{topic}[/]  topic id {document['topic_id']}")
    windows = document["windows"]
    number = document["partitions"]
    partitions = f"{number} {'partition' if number == 1 else 'partitions'}"
    out.print(f"  cluster {document['cluster_id']}, {partitions}")
    out.print(
        f"  windows {windows}, complete through {document['complete_through']}"
        if windows
        else "  no window is frozen yet"
    )
    for line in document["drift"] or ():
        out.print(f"  [yellow]drift:[/] {line}")
    columns = ("partition", "log_start", "last_stable", "end", "frozen", "landed", "lag")
    rows = [[cell(row[column]) for column in columns] for row in document["offsets"]]
    out.print(table(columns, rows, right=",".join(columns)))
    if document["configs"]:
        out.print(table(("config", "value"), sorted(document["configs"].items())))


def details(penstock: Connections, topic: str) -> dict[str, Any]:
    """A topic for JSON. Raises UnknownTopicError."""
    declared = declarations(penstock)
    try:
        found = penstock.kafka.describe(topic)
    except UnknownTopicError as error:
        if declared and topic in declared:
            raise CommandError(
                f"topic {topic} is declared and does not exist yet",
                fix="topic_sensor creates it, or materialise its asset",
            ) from error
        raise
    spec = (declared or {}).get(topic)
    newest = WindowStore.of(penstock).newest(found.ref)
    return {
        "topic": topic,
        "topic_id": found.ref.topic_id,
        "cluster_id": found.ref.cluster_id,
        "partitions": found.partitions,
        "replicas": found.replicas,
        "configs": found.set_configs,
        "declared": None if declared is None else spec is not None,
        "drift": [str(d) for d in drift(spec, found)] if spec is not None else None,
        "windows": newest.sequence + 1 if newest is not None else 0,
        "complete_through": newest.closed_at if newest is not None else None,
        "group": consumer_group(topic),
        "offsets": offset_rows(penstock, found.ref),
    }


def offset_rows(penstock: Connections, ref: TopicRef) -> list[dict[str, int]]:
    """Per partition: the log, the end of the chain of windows, and what is landed."""
    newest = WindowStore.of(penstock).newest(ref)
    frozen = {p.p: p.end for p in newest.partitions} if newest is not None else {}
    landed = penstock.kafka.group_offsets(consumer_group(ref.topic), ref.topic)
    return [
        {
            "partition": p,
            "log_start": o.log_start,
            "last_stable": o.last_stable,
            "end": o.high_watermark,
            "frozen": frozen.get(p, o.log_start),
            "landed": landed.get(p, o.log_start),
            "lag": max(0, o.last_stable - landed.get(p, o.log_start)),
        }
        for p, o in sorted(penstock.kafka.offsets(ref.topic).items())
    ]


def declarations(penstock: Connections) -> dict[str, TopicSpec] | None:
    """The declared topics, as the loaded code location has them; None where Dagster is away."""
    try:
        nodes = DagsterApi(penstock.settings, penstock.clock).query(_DECLARATIONS)["assetNodes"]
    except DagsterApiError:
        return None
    found: dict[str, TopicSpec] = {}
    for node in nodes:
        for entry in node["metadataEntries"]:
            if entry["label"] == DECLARATION_LABEL and entry.get("jsonString"):
                try:
                    spec = parse_topic(json.loads(entry["jsonString"]))
                except (
                    TopicError,
                    json.JSONDecodeError,
                ):  # another version's, which reports it
                    continue
                found[spec.name] = spec
    return found
