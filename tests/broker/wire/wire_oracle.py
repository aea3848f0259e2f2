"""kafka-python's protocol module as the oracle: independent code, made from Kafka's own schemas."""

from __future__ import annotations

import importlib
from functools import cache
from types import ModuleType
from typing import Any

from kafka.protocol.schemas import load_json

from penstock_broker.wire.apis import APIS
from penstock_broker.wire.fields import ArrayOf, Kind, Struct

MODULES = ("admin", "consumer", "metadata", "producer", "sasl")

CASES = [
    (cls, version)
    for api in APIS.values()
    for version in api.versions
    for cls in (api.request, api.response)
]
CASE_IDS = [f"{cls.__name__}-v{version}" for cls, version in CASES]


def oracle_schema(name: str) -> Any:
    """Kafka's own field table of a message, as kafka-python ships it."""
    return load_json(name)


@cache
def _modules() -> tuple[ModuleType, ...]:
    return tuple(importlib.import_module(f"kafka.protocol.{name}") for name in MODULES)


def oracle_class(name: str) -> Any:
    """Their class of the same name."""
    for module in _modules():
        if hasattr(module, name):
            return getattr(module, name)
    raise LookupError(name)


def oracle_decode(cls: type[Struct], version: int, data: bytes) -> Any:
    theirs = oracle_class(cls.__name__).decode(data, version=version)
    theirs._header = None  # their encode wants the attribute, their decode leaves it out
    return theirs


def oracle_encode(theirs: Any, version: int) -> bytes:
    return bytes(theirs.encode(version=version))


def _their_value(theirs: Any, name: str) -> Any:
    """They turn masks of authorized operations into sets of bits, and rename two of them."""
    if not name.endswith("_authorized_operations") and name != "authorized_operations":
        return getattr(theirs, name)
    if isinstance(theirs_value := getattr(theirs, name, None), bool):
        return theirs_value  # the request's question
    if not hasattr(theirs, "authorized_operations"):
        return getattr(theirs, name)
    bits = theirs.authorized_operations
    unsigned = 1 << 31 if bits is None else sum(1 << bit for bit in bits)
    return unsigned - (1 << 32) if unsigned >> 31 else unsigned


def differences(ours: Any, theirs: Any, version: int, path: str = "") -> list[str]:
    """Where the two objects do not say the same, field by field of this version."""
    found: list[str] = []
    for entry in type(ours).fields:
        if not entry.present(version):
            continue
        mine, other = getattr(ours, entry.name), _their_value(theirs, entry.name)
        here = f"{path}.{entry.name}"
        kind = entry.type
        if mine is None and entry.tag is not None and not isinstance(kind, Kind):
            continue  # a tagged struct left out: they fill in its defaults
        nested = kind.element if isinstance(kind, ArrayOf) else kind
        if mine is None or other is None or isinstance(nested, Kind):
            if isinstance(other, memoryview):
                other = bytes(other)
            if mine != other:
                found.append(f"{here}: {mine!r} != {other!r}")
        elif isinstance(kind, ArrayOf):
            if len(mine) != len(other):
                found.append(f"{here}: {len(mine)} elements != {len(other)}")
            for index, (one, two) in enumerate(zip(mine, other, strict=False)):
                found += differences(one, two, version, f"{here}[{index}]")
        else:
            found += differences(mine, other, version, here)
    return found
