"""A changed contract on a table that is there: what grows works, the rest is refused whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from penstock_platform.connections import Connections
from penstock_platform.lake.model.digests import digest_of, row_digests
from penstock_platform.landing.attempt import land_window, parse_window
from penstock_platform.reconciliation.books import Bookkeeper
from penstock_platform.topics.model.contract import Contract, load_contract
from penstock_platform.topics.model.contract_changes import ContractChangeError
from penstock_platform.topics.model.declaration import parse_topic, quarantine_table, silver_table
from penstock_platform.windows.model.window import Window

pytestmark = [pytest.mark.services, pytest.mark.xdist_group("lake")]

FIRST: dict[str, Any] = {
    "id": {"type": "integer", "format": "int32"},
    "price": {"type": "number", "format": "float"},
    "old": {"type": "string"},
    "sizes": {"type": "array", "items": {"type": "integer", "format": "int32"}},
    "place": {"type": "object", "properties": {"zip": {"type": "integer", "format": "int32"}}},
}
GROWN: dict[str, Any] = {
    "id": {"type": "integer"},
    "price": {"type": "number"},
    "sizes": {"type": "array", "items": {"type": "integer"}},
    "place": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "zip": {"type": "integer"}},
    },
    "note": {"type": "string"},
}
OTHER: dict[str, Any] = {**FIRST, "id": {"type": "string"}}
VALUE = b'{"id":1,"price":0.5,"old":"x","sizes":[7],"place":{"zip":89073,"city":"Ulm"},"note":"n"}'


def contract(properties: dict[str, Any], version: int = 1) -> Contract:
    text = json.dumps({"type": "object", "properties": properties}, indent=1)
    return load_contract(text, "orders.schema.json", version)


def rows(penstock: Connections, window: Window, version: int = 1) -> list[dict[str, Any]]:
    table = silver_table(window.topic, version)
    return list(penstock.lake.scan_table(table, window.window_id).to_pylist())


def test_a_contract_that_grows_widens_the_table_and_keeps_what_it_no_longer_declares(
    penstock: Connections, desk: Callable[..., Any]
) -> None:
    topic = desk("grows")
    topic.send_values([VALUE])
    early = topic.freeze()
    topic.send_values([VALUE])
    late = topic.freeze()
    for window in (early, late):
        land_window(penstock, window)
    first = parse_window(penstock, early, contract(FIRST))
    parsed = parse_window(penstock, late, contract(GROWN))

    types = dict(penstock.lake.columns(silver_table(topic.topic)))
    assert (types["id"], types["price"], types["note"]) == ("long", "double", "string")
    [old], [new] = rows(penstock, early), rows(penstock, late)
    assert (old["id"], old["old"], old["sizes"], old["place"]) == (
        *(1, "x", [7]),
        {"zip": 89073, "city": None},
    )
    assert (old["note"], new["note"], new["old"]) == (None, "n", None)
    assert new["place"] == {"city": "Ulm", "zip": 89073}
    for window, receipt in ((early, first.silver), (late, parsed.silver)):
        found = penstock.lake.scan_table(silver_table(topic.topic), window.window_id)
        assert digest_of([row_digests(found)]) == receipt.digest, "widening changes no digest"


def test_a_contract_that_does_not_fit_is_refused_and_a_new_version_takes_it(
    penstock: Connections, desk: Callable[..., Any]
) -> None:
    topic = desk("changes")
    spec = {"metadata": {"name": topic.topic}, "land": {}}
    topic.send_values([VALUE])
    early = topic.freeze()
    topic.send_values([b'{"id":"A-1"}', b'{"id":2}'])
    late = topic.freeze()
    for window in (early, late):
        land_window(penstock, window)
    parse_window(penstock, early, contract(FIRST))
    before = rows(penstock, early)

    with pytest.raises(ContractChangeError, match=r"orders\.schema\.json:\d+: id is string now"):
        parse_window(penstock, late, contract(OTHER))
    assert rows(penstock, early) == before
    assert rows(penstock, late) == []

    second = parse_window(penstock, late, contract(OTHER, version=2))
    assert second.silver.table == f"{silver_table(topic.topic)}_v2"
    assert second.quarantine.table == quarantine_table(topic.topic, 2)
    assert [row["id"] for row in rows(penstock, late, 2)] == ["A-1"]
    declared = parse_topic({**spec, "schema": {"file": "x.json", "version": 2}})
    books = Bookkeeper(penstock)
    for window in (early, late):  # the early one where it was parsed into
        assert books.prove_parsed(window, declared).equations[0].balanced

    # Remade: the early window in the new version as well, and the old table as it was.
    remade = parse_window(penstock, early, contract(OTHER, version=2))
    assert remade.quarantine.rows == 1, "its id is a number"
    assert rows(penstock, early) == before
    assert books.prove_parsed(early, declared).tiers["quarantined"] == 1
