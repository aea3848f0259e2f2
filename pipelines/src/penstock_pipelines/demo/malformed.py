"""Malformed records, as in real systems: cut off, incomplete, of the wrong type."""

from __future__ import annotations

import json
from random import Random
from typing import Any

# Per kind of source: a field that its contract requires, and one with its wrong value.
REQUIRED = {"flights": "carrier", "weather": "origin", "metrics": "metric"}
WRONG = {
    "flights": ("distance", "far"),
    "weather": ("hour", "noon"),
    "metrics": ("value", "much"),
}
WAYS = ("cut off", "field missing", "wrong type")


def encode(value: dict[str, Any]) -> bytes:
    """The record value of an event: compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def malformed(kind: str, value: dict[str, Any], random: Random) -> tuple[str, bytes]:
    """Make the event malformed in one of ``WAYS``; returns which, and the record's value."""
    way = random.choice(WAYS)
    if way == "cut off":
        body = encode(value)
        return way, body[: random.randrange(1, len(body))]
    if way == "field missing":
        return way, encode({name: v for name, v in value.items() if name != REQUIRED[kind]})
    name, wrong = WRONG[kind]
    return way, encode({**value, name: wrong})
