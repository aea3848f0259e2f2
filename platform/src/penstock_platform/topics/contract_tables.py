"""Whether declared contracts fit the silver tables that are there, asked before a window is parsed.

A landing run refuses a contract that does not fit its table (``model/contract_changes.py``). Asked
here, at ``penstock validate`` and ``penstock up``, the same refusal comes before any run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock_platform.archive.endpoint import reachable
from penstock_platform.lake.errors import LakeError, StoreError
from penstock_platform.settings import Settings
from penstock_platform.topics.model.contract import Contract
from penstock_platform.topics.model.contract_changes import (
    ContractChangeError,
    SparkType,
    column_changes,
)
from penstock_platform.topics.model.declaration import silver_table

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.types import IcebergType

# Iceberg's names of types that Spark names otherwise.
_SPARK_NAMES = {"long": "bigint", "timestamptz": "timestamp", "timestamp": "timestamp_ntz"}


def table_problems(
    settings: Settings, contracts: Iterable[tuple[str, Contract]]
) -> tuple[list[str], list[str]]:
    """(problems, notes) of the contracts of topics, by name, against their silver tables.

    A note says why a table could not be asked. Where no table was ever made, nothing is asked.
    """
    declared = list(contracts)
    if not declared or not (settings.lake.catalog_uri or settings.catalog_path.is_file()):
        return [], []
    if not reachable(settings.s3_endpoint):
        return [], [
            "the contracts were not compared with their tables: the object store at "
            f"{settings.s3_endpoint} does not answer (see: penstock status)"
        ]
    from penstock_platform.lake.tables import Lake  # noqa: PLC0415 - loads pyiceberg

    lake = Lake(settings)
    problems: list[str] = []
    notes: list[str] = []
    for topic, contract in declared:
        table = silver_table(topic, contract.version)
        try:
            schema = lake.schema(table)
            if schema is not None:
                column_changes(table, columns_of(schema), contract, topic)
        except ContractChangeError as error:
            problems += str(error).splitlines()
        except (LakeError, StoreError, OSError) as error:
            said = str(error).strip().partition("\n")[0]
            notes.append(f"{contract.file} was not compared with {table}: {said}")
    return problems, notes


def columns_of(schema: Schema) -> dict[str, SparkType]:
    """An Iceberg schema's columns by name, with Spark's types."""
    return {field.name: spark_type(field.field_type) for field in schema.fields}


def spark_type(kind: IcebergType) -> SparkType:
    """An Iceberg type as ``topics/model/contract_changes.py`` has types."""
    from pyiceberg.types import ListType, MapType, StructType  # noqa: PLC0415

    if isinstance(kind, StructType):
        return ("struct", tuple((f.name, spark_type(f.field_type)) for f in kind.fields))
    if isinstance(kind, ListType):
        return ("array", spark_type(kind.element_type))
    if isinstance(kind, MapType):
        return ("map", spark_type(kind.key_type), spark_type(kind.value_type))
    return _SPARK_NAMES.get(str(kind), str(kind))
