"""``TopicComponent``: one YAML document declares a topic, its landing and its books.

::

    type: penstock_platform.TopicComponent
    attributes:
      metadata: {name: shop.orders}
      spec: {partitions: 6}
      land: {window: hourly}                     # bronze, books
      schema: {file: orders.schema.json}         # silver and quarantine
      retention: {keep: 7d}                      # swept by the PlatformComponent

All keys are in ``domain/topics.py``. A declaration that cannot be used fails when the code
location loads, with its file and line.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import BaseModel

from penstock_platform.components import declarations
from penstock_platform.components.landing import build_books, build_bronze, build_silver
from penstock_platform.components.plan import TopicPlan
from penstock_platform.components.topic_asset import build_topic_asset
from penstock_platform.domain.contract import Contract, ContractError, load_contract
from penstock_platform.domain.topics import TopicError, TopicSpec, parse_topic
from penstock_platform.resources.starts import partition_start
from penstock_platform.settings import Settings

_ATTRIBUTES = declarations.attributes_model("TopicAttributes", TopicSpec)


class TopicComponent(dg.Component):
    """A Kafka topic in which every record is accounted for: topic, landing, books, retention."""

    def __init__(
        self, spec: TopicSpec, contract: Contract | None = None, declared_at: str = ""
    ) -> None:
        self.spec = spec
        self.contract = contract
        self.declared_at = declared_at

    @classmethod
    def get_model_cls(cls) -> type[BaseModel]:
        return _ATTRIBUTES

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        return dg.ComponentTypeSpec(description=cls.__doc__, produces=["asset", "asset_check"])

    @classmethod
    def load(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> TopicComponent:
        """Raises DeclarationError, naming file, line, key, finding and remedy."""
        file, lines = declarations.file_of(context), declarations.lines_of(context)
        try:
            spec = parse_topic(declarations.values_of(attributes), file, lines)
        except TopicError as error:
            raise declarations.DeclarationError(str(error)) from error
        contract = None
        if spec.contract is not None:
            place = declarations.place_of(context, "schema", "file")
            contract = _read_contract(context.path, spec.contract.file, place)
        return cls(spec, contract, declarations.place_in_project(context))

    def plan(self, settings: Settings | None = None) -> TopicPlan:
        """What follows from the declaration in this home."""
        settings = settings or Settings.load()
        return TopicPlan(
            spec=self.spec,
            cluster=settings.cluster,
            start=partition_start(settings, self.spec),
            contract=self.contract,
            declared_at=self.declared_at,
        )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        plan = self.plan()
        assets: list[Any] = [build_topic_asset(plan)]
        if plan.spec.land is not None:
            assets.append(build_bronze(plan))
            if plan.contract is not None:
                assets.append(build_silver(plan))
            assets.append(build_books(plan))
        return dg.Definitions(assets=assets)


def _read_contract(folder: Path, file: str, place: str) -> Contract:
    path = (folder if folder.is_dir() else folder.parent) / file
    try:
        return load_contract(path.read_text(), str(path))
    except OSError as error:
        raise declarations.DeclarationError(
            f"{place}: schema.file: cannot read {path}: {error.strerror}; "
            "the path is relative to the declaration"
        ) from error
    except ContractError as error:
        raise declarations.DeclarationError(f"{place}: schema.file: {error}") from error
