"""Hypothesis strategies and sample values for any message class, from its own field table."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import cache
from typing import Any

from hypothesis import strategies as st

from penstock_broker.wire.fields import (
    BOOL,
    BYTES,
    FLOAT64,
    RECORDS,
    STRING,
    UUID,
    ArrayOf,
    Field,
    Kind,
    Struct,
)

INTEGER_BITS = {"b": 8, "h": 16, "i": 32, "q": 64}

# Lengths around the places where a varint grows by a byte.
LONG_STRINGS = st.sampled_from([n * "x" for n in (125, 126, 127, 128, 16382, 16383, 16384)])


def _integers(kind: Kind) -> st.SearchStrategy[int]:
    if kind.code.isupper():
        return st.integers(0, 2 ** (8 * kind.size) - 1)
    half = 1 << (INTEGER_BITS[kind.code] - 1)
    return st.one_of(st.sampled_from([0, -1, half - 1, -half]), st.integers(-half, half - 1))


def primitives(kind: Kind) -> st.SearchStrategy[Any]:
    if kind is BOOL:
        return st.booleans()
    if kind is STRING:
        return st.one_of(st.text(max_size=6), LONG_STRINGS)
    if kind in (BYTES, RECORDS):
        return st.one_of(st.binary(max_size=6), st.sampled_from([n * b"r" for n in (127, 16383)]))
    if kind is UUID:
        return st.uuids()
    if kind is FLOAT64:
        return st.floats(allow_nan=False)
    return _integers(kind)


def absent(entry: Field) -> Any:
    value = entry.absent_value()
    return [] if value == () else value


def _values(entry: Field, version: int) -> st.SearchStrategy[Any]:
    kind = entry.type
    values: st.SearchStrategy[Any]
    if isinstance(kind, ArrayOf):
        element = kind.element
        items = primitives(element) if isinstance(element, Kind) else messages(element, version)
        values = st.lists(items, max_size=2)
    elif isinstance(kind, Kind):
        values = primitives(kind)
    else:
        values = messages(kind, version)
    if entry.nullable(version) or (entry.tag is not None and entry.absent_value() is None):
        values = st.one_of(st.none(), values)
    return values


@cache
def messages(cls: type[Struct], version: int) -> st.SearchStrategy[Any]:
    """Instances as a decoder of this version would give them."""
    present = {f.name: _values(f, version) for f in cls.fields if f.present(version)}
    missing = [f for f in cls.fields if not f.present(version)]
    return st.fixed_dictionaries(present).map(
        lambda values: cls(**values, **{f.name: absent(f) for f in missing})
    )


def _sample_primitive(kind: Kind, serial: Callable[[], int]) -> Any:
    number = serial()
    if kind is BOOL:
        return bool(number % 2)
    if kind is STRING:
        return f"text-{number}"
    if kind in (BYTES, RECORDS):
        return b"bytes-%d" % number
    if kind is UUID:
        return uuid.UUID(int=(number << 64) + number)
    return number % 100


def sample(cls: type[Struct], version: int, elements: int = 2) -> Any:
    """One instance with every field set and `elements` in each array: the same each time."""
    count = 0

    def serial() -> int:
        nonlocal count
        count += 1
        return count

    def build(owner: type[Struct]) -> Any:
        values = {}
        for entry in owner.fields:
            kind = entry.type
            if not entry.present(version):
                values[entry.name] = absent(entry)
            elif isinstance(kind, ArrayOf):
                element = kind.element
                values[entry.name] = [
                    _sample_primitive(element, serial)
                    if isinstance(element, Kind)
                    else build(element)
                    for _ in range(elements)
                ]
            elif isinstance(kind, Kind):
                values[entry.name] = _sample_primitive(kind, serial)
            else:
                values[entry.name] = build(kind)
        return owner(**values)

    return build(cls)
