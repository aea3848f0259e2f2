"""``TopicComponent``: one YAML document declares a topic, its landing and its books.

::

    type: penstock_platform.TopicComponent
    attributes:
      metadata: {name: shop.orders}
      spec: {partitions: 6}
      land: {window: hourly}                     # bronze, books
      schema: {file: orders.schema.json}         # silver and quarantine
      retention: {keep: 7d}                      # swept by the PlatformComponent

All keys are in ``topics/model/declaration.py``. A declaration that cannot be used fails when the
code location loads, with its file and line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg
from pydantic import BaseModel

from penstock_platform.components.resource_component import settings_at_load
from penstock_platform.landing.assets import build_books, build_bronze, build_silver
from penstock_platform.settings import Settings
from penstock_platform.topics import declarations
from penstock_platform.topics.asset import build_topic_asset
from penstock_platform.topics.model.contract import Contract, ContractError, load_contract
from penstock_platform.topics.model.declaration import TopicSpec
from penstock_platform.topics.names import Names
from penstock_platform.topics.plan import TopicPlan
from penstock_platform.topics.scaffolding import TopicScaffolder
from penstock_platform.topics.starts import partition_start

_ATTRIBUTES = declarations.attributes_model("TopicAttributes", TopicSpec)


@dg.scaffold_with(TopicScaffolder)
class TopicComponent(declarations.DeclaredComponent):
    """A Kafka topic in which every record is accounted for: topic, landing, books, retention."""

    ATTRIBUTES = _ATTRIBUTES
    TAGS = ("kafka", "spark", "iceberg")
    PRODUCES = ("asset", "asset_check")

    def __init__(
        self, spec: TopicSpec, contract: Contract | None = None, declared_at: str = ""
    ) -> None:
        self.spec = spec
        self.contract = contract
        self.declared_at = declared_at

    @classmethod
    def read(
        cls, values: Mapping[str, Any], source: declarations.Source
    ) -> tuple[TopicSpec, Contract | None]:
        """The declaration and its contract. Raises DeclarationError with all problems of both,
        each with file, line, key, finding and remedy."""
        spec = declarations.parse(TopicSpec, values, source)
        contract = None
        if spec.contract is not None:
            contract = _read_contract(source, spec.contract.file, spec.contract.version)
        return spec, contract

    @classmethod
    def load(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> TopicComponent:
        """Raises DeclarationError, as ``read``."""
        spec, contract = cls.read(
            declarations.values_of(attributes), declarations.source_of(context)
        )
        return cls(spec, contract, declarations.place_in_project(context))

    def plan(self, settings: Settings | None = None, names: Names | None = None) -> TopicPlan:
        """What follows from the declaration in this home."""
        settings = settings or Settings.load()
        return TopicPlan(
            spec=self.spec,
            cluster=settings.cluster,
            start=partition_start(settings, self.spec),
            contract=self.contract,
            declared_at=self.declared_at,
            names=names or Names(),
        )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        return build_topic(self.plan(settings_at_load(context)))


def build_topic(plan: TopicPlan) -> dg.Definitions:
    """The assets of one topic. They need the resource ``penstock``."""
    assets: list[Any] = [build_topic_asset(plan)]
    if plan.spec.land is not None:
        assets.append(build_bronze(plan))
        if plan.contract is not None:
            assets.append(build_silver(plan))
        assets.append(build_books(plan))
    return dg.Definitions(assets=assets)


def _read_contract(source: declarations.Source, file: str, version: int) -> Contract:
    path, at = source.folder / file, source.at("schema", "file")
    try:
        return load_contract(path.read_text(), declarations.short(path), version)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise declarations.DeclarationError(
            f"{at}: schema.file: cannot read {path}: {reason}; "
            "the path is relative to the declaration"
        ) from None
    except ContractError as error:
        lines = str(error).splitlines()
        raise declarations.DeclarationError(
            "\n".join(f"{at}: schema.file: {line}" for line in lines)
        ) from None
