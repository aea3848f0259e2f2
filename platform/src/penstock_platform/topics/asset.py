"""The topic itself as an asset: materialising it makes the broker agree with the declaration."""

from collections.abc import Iterator
from typing import Any

import dagster as dg

from penstock_platform.topics.apply import apply_topic
from penstock_platform.topics.metadata import table
from penstock_platform.topics.model.declaration import AUDIT_TOPIC
from penstock_platform.topics.plan import DECLARATION_METADATA, TopicPlan

CONFIG_SCHEMA = dg.TableSchema(
    [
        dg.TableColumn("config", "string", "Kafka's name"),
        dg.TableColumn("declared", "string", "As declared"),
        dg.TableColumn("found", "string", "As the broker has it"),
        dg.TableColumn("agrees", "bool", "Whether they agree"),
    ]
)


def describe_topic(plan: TopicPlan) -> str:
    """The description of the topic's page."""
    said = plan.spec.description.strip()
    if plan.name == AUDIT_TOPIC and not said:
        said = "What producers say they sent: the evidence of every other topic's books."
    return "\n\n".join(
        part
        for part in (
            said or f"Kafka topic `{plan.name}`.",
            f"Declared in `{plan.declared_at}`. Materialising creates the topic, adds partitions "
            "and sets its configs; nothing is ever deleted by it.",
        )
        if part
    )


def build_topic_asset(plan: TopicPlan) -> dg.AssetsDefinition:
    """Asset ``[<cluster>, "topic", <topic>]``."""

    @dg.asset(
        key=plan.topic_key,
        group_name="topics",
        kinds={"kafka", "streaming"},
        owners=plan.owners,
        tags=plan.tags,
        description=describe_topic(plan),
        metadata={
            "dagster/uri": f"kafka://{plan.cluster}/{plan.name}",
            "dagster/storage_kind": "kafka",
            DECLARATION_METADATA: dg.MetadataValue.json(
                plan.spec.model_dump(mode="json", by_alias=True, exclude_none=True)
            ),
        },
        required_resource_keys={"penstock"},
    )
    def topic_asset(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any]]:
        kafka = context.resources.penstock.kafka
        changes = apply_topic(kafka, plan.spec)
        for change in changes:
            context.log.info("%s: %s", plan.name, change)
        found = kafka.describe(plan.name)
        yield dg.MaterializeResult(
            metadata={
                "kafka/cluster_id": found.ref.cluster_id,
                "kafka/topic_id": found.ref.topic_id,
                "partitions": found.partitions,
                "changes": dg.MetadataValue.md(
                    "\n".join(f"- {change}" for change in changes) or "none; it agreed"
                ),
                "configs": table(config_rows(plan, found.configs), CONFIG_SCHEMA),
            },
            data_version=dg.DataVersion(found.ref.topic_id),
        )

    return topic_asset


def config_rows(plan: TopicPlan, found: dict[str, str]) -> list[dict[str, Any]]:
    """Declared configs beside the broker's own."""
    declared = plan.spec.broker_configs
    return [
        {
            "config": name,
            "declared": value,
            "found": found.get(name, ""),
            "agrees": found.get(name) == value,
        }
        for name, value in sorted(declared.items())
    ]
