"""Every API at every version, in both directions, against kafka-python's codec."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from wire_oracle import (
    CASE_IDS,
    CASES,
    differences,
    oracle_decode,
    oracle_encode,
    oracle_schema,
)
from wire_strategies import messages, sample

from penstock_broker.wire.apis import APIS
from penstock_broker.wire.fields import ArrayOf, Field, Kind, Struct
from penstock_broker.wire.messages.api_versions import ApiVersionsResponse
from penstock_broker.wire.schema import decode, encode

pytestmark = pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning")

QUICK = settings(
    max_examples=25,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def agrees(message: Any, version: int) -> None:
    cls = type(message)
    if cls is ApiVersionsResponse:
        message.error_code = 0  # they read any failure as version 0
    ours = encode(message, version)
    theirs = oracle_decode(cls, version, ours)
    assert not differences(message, theirs, version)
    from_them = oracle_encode(theirs, version)
    assert from_them == ours
    decoded, position = decode(cls, version, memoryview(from_them))
    assert decoded == message
    assert position == len(from_them)


@pytest.mark.parametrize(("cls", "version"), CASES, ids=CASE_IDS)
def test_codec_agrees_with_the_oracle(cls: type[Struct], version: int) -> None:
    agrees(sample(cls, version), version)
    agrees(sample(cls, version, elements=0), version)

    @QUICK
    @given(messages(cls, version))
    def whatever_the_values(message: Any) -> None:
        agrees(message, version)

    whatever_the_values()


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def _range(text: str) -> tuple[int, int]:
    if text == "none":
        return (1, 0)
    first, _, last = text.partition("-")
    if text.endswith("+"):
        return (int(text[:-1]), 32767)
    return (int(first), int(last or first))


NUMBERS = {"int8", "int16", "int32", "int64", "float64"}
TYPE_NAMES = NUMBERS | {"bool", "string", "bytes", "uuid", "records"}


def _type_name(entry: Field) -> str:
    kind = entry.type
    if isinstance(kind, ArrayOf):
        return "[]" + (kind.element.name if isinstance(kind.element, Kind) else "struct")
    return kind.name if isinstance(kind, Kind) else "struct"


def _schema_differences(
    cls: type[Struct], table: list[dict[str, Any]], shared: dict[str, Any], versions: range
) -> list[str]:
    """Compare a class with Kafka's field table, for the versions that we have."""
    found = []
    named = {_snake(row["name"]): row for row in table}
    for version in versions:
        theirs = [n for n, r in named.items() if _in(r["versions"], version)]
        ours = [f.name for f in cls.fields if f.present(version)]
        tagged = [n for n in theirs if "tag" in named[n]]
        plain = [n for n in theirs if n not in tagged]
        if sorted(ours) != sorted(theirs) or [n for n in ours if n in plain] != plain:
            found.append(f"{cls.__name__} v{version}: {ours} != {theirs}")
    for entry in cls.fields:
        row = named.get(entry.name)
        if row is None:
            continue
        kind = row["type"]
        array = kind.startswith("[]")
        plain_kind = kind.removeprefix("[]")
        expected = ("[]" if array else "") + (plain_kind if plain_kind in TYPE_NAMES else "struct")
        if _type_name(entry) != expected:
            found.append(f"{cls.__name__}.{entry.name}: {_type_name(entry)} != {expected}")
        if entry.tag != row.get("tag"):
            found.append(f"{cls.__name__}.{entry.name}: tag {entry.tag} != {row.get('tag')}")
        for version in versions:
            if entry.present(version) and entry.nullable(version) != _in(
                row.get("nullableVersions", "none"), version
            ):
                found.append(f"{cls.__name__}.{entry.name}: nullable in v{version}")
        nested = entry.type.element if isinstance(entry.type, ArrayOf) else entry.type
        if not isinstance(nested, Kind):
            fields = row.get("fields") or shared[plain_kind]
            found += _schema_differences(nested, fields, shared, versions)
    return found


def _in(text: str, version: int) -> bool:
    first, last = _range(text)
    return first <= version <= last


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_field_table_is_kafkas(api: Any) -> None:
    """Names, order, types, null and tags of every field at every version, from the schemas."""
    for cls in (api.request, api.response):
        schema = oracle_schema(cls.__name__)
        assert schema["apiKey"] == api.key
        shared = {row["name"]: row["fields"] for row in schema.get("commonStructs", ())}
        assert not _schema_differences(cls, schema["fields"], shared, api.versions)
        for version in api.versions:
            assert api.flexible(version) == _in(schema["flexibleVersions"], version)
            assert _in(schema["validVersions"], version)


@QUICK
@given(st.data())
def test_arrays_longer_than_a_short_varint(data: st.DataObject) -> None:
    api = APIS[3]
    count = data.draw(st.sampled_from([15, 16, 126, 127, 128, 300]))
    version = data.draw(st.sampled_from(list(api.versions)))
    message = sample(api.response, version, elements=1)
    message.brokers = message.brokers * count
    message.topics[0].partitions[0].replica_nodes = list(range(count))
    agrees(message, version)
