"""The digest of a table's rows in Spark, as ``lake/model/digests.py`` defines it."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from penstock_platform.lake.model.digests import DigestError, tag_of

_AS_THEY_ARE = (BooleanType, DateType, TimestampType, DoubleType, StringType, BinaryType)


def row_digest(schema: StructType) -> Column:
    """One row of this schema in 64 bits, signed. Raises DigestError for an unknown type."""
    parts: list[Column] = []
    for field in sorted(schema.fields, key=lambda f: f.name):
        parts += _tagged(sf.col(_quoted(field.name)), field.name, field.dataType)
    return sf.xxhash64(*parts)


def digest_halves(digest: Column) -> tuple[Column, Column]:
    """The sums of the digests' halves, ``low`` and ``high``: a sum of whole ones could overflow.

    ``model.digests.digest_of_halves`` makes one digest of them.
    """
    low = sf.sum(digest.bitwiseAND(sf.lit(0xFFFF_FFFF))).alias("low")
    high = sf.sum(sf.shiftrightunsigned(digest, 32)).alias("high")
    return low, high


def _tagged(column: Column, name: str, kind: DataType) -> list[Column]:
    tag = sf.when(_present(column, kind), sf.lit(tag_of(name)).cast("bigint"))
    return [tag, *_parts(column, name, kind)]


def _parts(column: Column, name: str, kind: DataType) -> list[Column]:
    if isinstance(kind, IntegralType):
        return [column.cast("bigint")]
    if isinstance(kind, FloatType):
        return [column.cast("double")]
    if isinstance(kind, _AS_THEY_ARE):
        return [column]
    if isinstance(kind, StructType):
        return [
            part
            for field in kind.fields
            for part in _tagged(column.getField(field.name), field.name, field.dataType)
        ]
    if isinstance(kind, MapType):
        entries = StructType().add("key", kind.keyType).add("value", kind.valueType)
        return _parts(sf.map_entries(column), name, ArrayType(entries))
    if isinstance(kind, ArrayType):
        element = kind.elementType

        def digest(x: Column) -> Column:
            own = sf.xxhash64(*_parts(x, name, element))
            return sf.when(_present(x, element), own).otherwise(sf.lit(0).cast("bigint"))

        length = sf.when(_present(column, kind), sf.size(column).cast("bigint"))
        return [length, sf.transform(column, digest)]
    raise DigestError(f"column {name} has type {kind.simpleString()}, which has no digest")


def _present(column: Column, kind: DataType) -> Column:
    """Whether there is a value: not null, and no empty array or map."""
    if isinstance(kind, ArrayType | MapType):
        return column.isNotNull() & (sf.size(column) > 0)
    return column.isNotNull()


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
