"""The digest of a table's rows: the same number in Spark's JVM and here, from Arrow.

A row's digest is a chain of xxHash64 (https://xxhash.com) over its columns in the order of their
names: ``h = 42``; for every column that is not null ``h = xxh64(tag of its name, seed=h)``, then
``h = value(column, h)``. A null column adds nothing, so a column that is added to a table later
changes no digest; the tag distinguishes equal values in different columns. An empty array or
map counts as null, because pyiceberg does not read them apart. By type::

    boolean                  xxh64 of 4 bytes, 0 or 1
    date                     xxh64 of 4 bytes, days since 1970
    int, bigint              xxh64 of 8 bytes
    timestamp                xxh64 of 8 bytes, microseconds since 1970 in UTC
    float, double            xxh64 of 8 bytes, IEEE 754 of the double; -0.0 as 0.0
    string, binary           xxh64 of the bytes (UTF-8)
    struct                   its fields as a row's columns, in their own order
    array                    its length as a bigint, then each element's digest as a bigint;
                             an element's digest is value(element, 42), 0 for null
    map                      as an array of structs (key, value), in the order in which it is stored

Numbers are little-endian; a tag is the xxh64 (seed 42) of the name in UTF-8, as a bigint. These are
the values of Spark's ``xxhash64`` (``org.apache.spark.sql.catalyst.expressions.XXH64``); the Spark
side is ``lake/spark_digests.py``, and tests hold the two against each other.

A window's digest is the sum of its rows' digests modulo 2^64: it depends on no order, and a row
that is there twice does not cancel itself. Not a signature: it finds what was changed, swapped,
doubled or lost, not what was forged to fit it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import xxhash
from numpy.typing import NDArray

Digests = NDArray[np.uint64]
Number = TypeVar("Number", bound=np.generic)

SEED = 42
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(n)
    for n in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)


class DigestError(TypeError):
    """A column whose type has no digest: names column and type."""


def row_digests(rows: pa.Table | pa.RecordBatch) -> Digests:
    """The digest of each row, in the rows' order. Raises DigestError for an unknown type."""
    digests = np.full(rows.num_rows, SEED, np.uint64)
    for name in sorted(rows.schema.names):
        column = rows.column(name)
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        digests = _tagged(digests, name, column)
    return digests


def digest_of(digests: Iterable[Digests]) -> str:
    """A window's digest of its rows' (in any number of parts): 16 hex digits."""
    total = sum(int(part.sum(dtype=np.uint64)) for part in digests)
    return f"{total % (1 << 64):016x}"


def digest_of_halves(low: int, high: int) -> str:
    """The same of two sums: of the rows' lower 32 bits, and of their upper 32 bits."""
    return f"{(low + (high << 32)) % (1 << 64):016x}"


def number_digests(values: NDArray[np.int64]) -> Digests:
    """The xxHash64 (seed 42) of each number as a bigint, as Spark's ``xxhash64`` of one column."""
    return _hash_8(values.view(np.uint64), np.full(values.size, SEED, np.uint64))


def tag_of(name: str) -> int:
    """A column name's tag as a signed 64-bit number."""
    tag = xxhash.xxh64_intdigest(name.encode(), SEED)
    return tag - (1 << 64) if tag >> 63 else tag


def _tagged(seeds: Digests, name: str, values: pa.Array) -> Digests:
    """The chain behind a column or field: unchanged where it is null."""
    if pa.types.is_map(values.type):
        values = _entries(values)
    there = _present(values)
    tags = np.full(len(values), tag_of(name), np.int64)
    return _value(np.where(there, _hash_8(tags.view(np.uint64), seeds), seeds), name, values)


def _value(seeds: Digests, name: str, values: pa.Array) -> Digests:
    kind = values.type
    if pa.types.is_struct(kind):
        for number, field in enumerate(values.flatten()):
            seeds = _tagged(seeds, kind.field(number).name, field)
        return seeds
    if pa.types.is_map(kind):
        return _value(seeds, name, _entries(values))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _elements(seeds, name, values)
    if _is_bytes(kind):
        return _bytes(seeds, values)
    hashed = _fixed(seeds, name, values)
    return np.where(_valid(values), hashed, seeds)


def _is_bytes(kind: pa.DataType) -> bool:
    is_a = pa.types
    return bool(
        is_a.is_string(kind)
        or is_a.is_large_string(kind)
        or is_a.is_binary(kind)
        or is_a.is_large_binary(kind)
    )


def _bytes(seeds: Digests, values: pa.Array) -> Digests:
    hash_ = xxhash.xxh64_intdigest
    found = values.cast(pa.large_binary()).to_pylist()
    pairs = zip(found, seeds.tolist(), strict=True)
    return np.fromiter(
        (seed if value is None else hash_(value, seed) for value, seed in pairs),
        np.uint64,
        len(values),
    )


def _fixed(seeds: Digests, name: str, values: pa.Array) -> Digests:
    """Of columns of a fixed width; the value at a null is not used."""
    kind, is_a = values.type, pa.types
    if is_a.is_boolean(kind):
        return _hash_4(_numbers(values.cast(pa.int8()), np.uint64), seeds)
    if is_a.is_date32(kind):
        days = _numbers(values.cast(pa.int32()), np.int32)
        return _hash_4(days.view(np.uint32).astype(np.uint64), seeds)
    if is_a.is_signed_integer(kind):
        return _hash_8(_numbers(values, np.int64).view(np.uint64), seeds)
    if is_a.is_timestamp(kind):
        micros = values.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
        return _hash_8(_numbers(micros, np.int64).view(np.uint64), seeds)
    if is_a.is_floating(kind):
        numbers = _numbers(values, np.float64) + 0.0  # -0.0 becomes 0.0
        numbers[np.isnan(numbers)] = np.nan  # one of the many bit patterns, as Java writes it
        return _hash_8(numbers.view(np.uint64), seeds)
    raise DigestError(f"column {name} has type {kind}, which has no digest")


def _elements(seeds: Digests, name: str, values: pa.Array) -> Digests:
    counts = _lengths(values)
    there = counts > 0
    hashed = np.where(there, _hash_8(counts.view(np.uint64), seeds), seeds)
    flat = values.flatten()
    if pa.types.is_map(flat.type):
        flat = _entries(flat)
    own = _value(np.full(len(flat), SEED, np.uint64), name, flat)
    own[~_present(flat)] = 0
    first = np.cumsum(counts) - counts
    rows = np.flatnonzero(there)
    place = 0
    while rows.size:
        hashed[rows] = _hash_8(own[first[rows] + place], hashed[rows])
        place += 1
        rows = rows[counts[rows] > place]
    return hashed


def _entries(values: pa.MapArray) -> pa.ListArray:
    """A map as an array of structs (key, value), which it is in memory already."""
    key, item = values.type.key_type, values.type.item_type
    pairs = pa.struct([pa.field("key", key, nullable=False), pa.field("value", item)])
    return values.cast(pa.list_(pa.field("entries", pairs, nullable=False)))


def _present(values: pa.Array) -> NDArray[np.bool_]:
    """Where there is a value: not null, and no empty array."""
    if pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
        return _lengths(values) > 0
    return _valid(values)


def _lengths(values: pa.Array) -> NDArray[np.int64]:
    """Elements of each array; 0 for null."""
    return _numbers(values.value_lengths(), np.int64)


def _valid(values: pa.Array) -> NDArray[np.bool_]:
    if not values.null_count:
        return np.ones(len(values), dtype=bool)
    valid: NDArray[np.bool_] = values.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _numbers(values: pa.Array, kind: type[Number]) -> NDArray[Number]:
    """A copy as numbers, with 0 for null."""
    filled = values.fill_null(0) if values.null_count else values
    return np.array(filled.to_numpy(zero_copy_only=False), dtype=kind)


def _hash_8(words: Digests, seeds: Digests) -> Digests:
    """xxHash64 of 8 bytes each."""
    hashed = seeds + _P5 + np.uint64(8)
    hashed ^= _rotated(words * _P2, 31) * _P1
    return _avalanche(_rotated(hashed, 27) * _P1 + _P4)


def _hash_4(words: Digests, seeds: Digests) -> Digests:
    """xxHash64 of the lower 4 bytes each; the upper ones are 0."""
    hashed = seeds + _P5 + np.uint64(4)
    hashed ^= words * _P1
    return _avalanche(_rotated(hashed, 23) * _P2 + _P3)


def _rotated(words: Digests, by: int) -> Digests:
    return (words << np.uint64(by)) | (words >> np.uint64(64 - by))


def _avalanche(words: Digests) -> Digests:
    words ^= words >> np.uint64(33)
    words *= _P2
    words ^= words >> np.uint64(29)
    words *= _P3
    words ^= words >> np.uint64(32)
    return words
