"""What the components know of one declared topic once it is loaded: names, partitions, contract."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

import dagster as dg

from penstock_platform.topics.model.contract import Contract
from penstock_platform.topics.model.cron import KEY_FORMAT
from penstock_platform.topics.model.declaration import (
    TopicSpec,
    books_key,
    bronze_key,
    quarantine_key,
    quarantine_table,
    retention_key,
    silver_key,
    silver_table,
    topic_key,
)
from penstock_platform.topics.names import Names

DECLARATION_METADATA = "penstock/declaration"


@dataclass(frozen=True)
class TopicPlan:
    """One topic as declared, with what follows from it. ``declared_at`` is `file:line`."""

    spec: TopicSpec
    cluster: str
    start: datetime  # the partition definition's first window, persisted (topics/starts.py)
    contract: Contract | None = None
    declared_at: str = ""
    names: Names = field(default_factory=Names)

    @property
    def name(self) -> str:
        return self.spec.name

    @cached_property
    def partitions(self) -> dg.TimeWindowPartitionsDefinition:
        """The topic's windows as Dagster partitions; raises ValueError where nothing is landed."""
        if self.spec.land is None:
            raise ValueError(f"topic {self.name} is not landed, so it has no windows")
        return dg.TimeWindowPartitionsDefinition(
            cron_schedule=self.spec.land.cron, start=self.start, fmt=KEY_FORMAT, timezone="UTC"
        )

    @property
    def topic_key(self) -> dg.AssetKey:
        return dg.AssetKey(topic_key(self.cluster, self.name))

    @property
    def bronze_key(self) -> dg.AssetKey:
        return dg.AssetKey(bronze_key(self.name))

    @property
    def silver_table(self) -> str:
        return silver_table(self.name, self.spec.silver_version)

    @property
    def quarantine_table(self) -> str:
        return quarantine_table(self.name, self.spec.silver_version)

    @property
    def silver_key(self) -> dg.AssetKey:
        return dg.AssetKey(silver_key(self.name, self.spec.silver_version))

    @property
    def quarantine_key(self) -> dg.AssetKey:
        return dg.AssetKey(quarantine_key(self.name, self.spec.silver_version))

    @property
    def books_key(self) -> dg.AssetKey:
        return dg.AssetKey(books_key(self.name))

    @property
    def retention_key(self) -> dg.AssetKey:
        return dg.AssetKey(retention_key(self.name))

    @property
    def landing_job(self) -> str:
        return self.names.landing_job(self.name)

    @property
    def evidence_job(self) -> str:
        return self.names.evidence_job(self.name)

    @property
    def swept(self) -> bool:
        """Whether retention has anything to do here: a policy, on a landed topic that is not
        compacted."""
        kept = self.spec.retention.keep is not None or self.spec.retention.max_bytes is not None
        return self.spec.land is not None and kept and not self.spec.compacted

    @property
    def landing_keys(self) -> list[dg.AssetKey]:
        """What one landing run makes, in the order in which it makes it."""
        silver = [self.silver_key] if self.contract is not None else []
        return [self.bronze_key, *silver, self.books_key]

    @property
    def tags(self) -> dict[str, str]:
        """Labels of the declaration as asset tags."""
        return dict(self.spec.metadata.labels)

    @property
    def owners(self) -> list[str]:
        return list(self.spec.owners)
