"""Records from their parts, and the walk over them: what is refused, and how often it looks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock_broker.wire import record_walk
from penstock_broker.wire.record_walk import (
    BadRecordError,
)

BEFORE, AFTER = b"\xff" * 5, b"\xff" * 9
"""Bytes around the records of a batch, which look like nothing in it."""
START = len(BEFORE)
NULL = b"\1"


def varint(value: int) -> bytes:
    """Seven bits a byte, as the walk reads them: zigzag is its callers' concern."""
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def sized(data: bytes) -> bytes:
    return varint(2 * len(data)) + data


def record(
    number: int = 0,
    *,
    time: bytes = b"\0",
    delta: bytes | None = None,
    key: bytes = sized(b"k"),
    value: bytes = sized(b"value"),
    headers: bytes = b"\0",
    size: bytes | None = None,
) -> bytes:
    """A record from its parts, with lengths before key and value."""
    body = b"\0" + time + (varint(2 * number) if delta is None else delta) + key + value + headers
    return (varint(2 * len(body)) if size is None else size) + body


def records(count: int, **parts: bytes) -> bytes:
    return b"".join(record(number, **parts) for number in range(count))


def header(key: bytes, value: bytes) -> bytes:
    return key + value


LONG_TIME = b"\xff" * 9 + b"\1"
"""A 64-bit number takes ten bytes."""
H = header(sized(b"h"), sized(b"x"))


class Counted:
    """Calls of a function of the module, and what they gave."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.given: list[Any] = []
        original: Callable[..., Any] = getattr(record_walk, name)

        def counting(*arguments: Any) -> Any:
            self.given.append(None)
            self.given[-1] = found = original(*arguments)
            return found

        monkeypatch.setattr(record_walk, name, counting)

    def take(self) -> int:
        """How many since the last time."""
        count = len(self.given)
        self.given.clear()
        return count


def walk(data: bytes, count: int) -> None:
    """Walk through records among other bytes."""
    record_walk._walk(BEFORE + data + AFTER, START, START + len(data), count)


def problem_of(check: Callable[[], object]) -> tuple[int, str] | None:
    """Which record is refused, and why."""
    try:
        check()
    except BadRecordError as bad:
        assert str(bad) == f"record {bad.number}: {bad.problem}"
        return bad.number, bad.problem
    return None
