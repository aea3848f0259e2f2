"""Connections that end leave nothing behind, not even until the next garbage collection."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import ssl
import weakref
from pathlib import Path
from typing import Any

import pytest

from penstock_broker.config import BrokerConfig
from penstock_broker.server import listener as listener_module
from penstock_broker.server.broker import Broker
from polling import until_async

ENDS = [
    ("PLAINTEXT", "silent"),
    ("PLAINTEXT", "garbage"),
    ("SSL", "silent"),
    ("SSL", "garbage"),
    ("SSL", "half a hello"),
    ("SSL", "shaken"),
    ("SASL_PLAINTEXT", "silent"),
    ("SASL_PLAINTEXT", "garbage"),
    ("SASL_SSL", "garbage"),
    ("SASL_SSL", "shaken"),
]


def come_and_go(address: tuple[str, int], way: str, context: ssl.SSLContext) -> None:
    for _ in range(10):
        with socket.create_connection(address, 10) as plain:
            if way == "garbage":
                plain.sendall(b"\0\0\0\2" + os.urandom(60))
            elif way == "half a hello":
                plain.sendall(b"\x16\x03\x01\x02\x00\x01")
            elif way == "shaken":
                context.wrap_socket(plain, server_hostname="localhost").close()


async def test_ended_connections_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, authority: Any
) -> None:
    """Hostile clients come faster than cycles are collected."""
    made: list[weakref.ref[Any]] = []

    def watched(cls: type[Any]) -> Any:
        def make(*arguments: Any) -> Any:
            connection = cls(*arguments)
            made.append(weakref.ref(connection))
            return connection

        return make

    for name in ("Connection", "TlsConnection"):
        monkeypatch.setattr(listener_module, name, watched(getattr(listener_module, name)))
    names = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
    settings = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in names),
        "ssl.keystore.location": str(authority.issue("gone.pem", "localhost")),
    }
    broker = Broker(BrokerConfig.parse(settings), tmp_path / "data")
    await broker.start("127.0.0.1", 0)
    context = ssl.create_default_context(cafile=authority.path)
    loop = asyncio.get_running_loop()

    def all_gone() -> bool:
        return (
            len(made) == 10 and not len(broker.listeners) and all(each() is None for each in made)
        )

    gc.disable()
    try:
        for name, way in ENDS:
            made.clear()
            address = broker.listeners.address_of(name)
            await loop.run_in_executor(None, come_and_go, address, way, context)
            await until_async(f"all connections of {name} are gone ({way})", all_gone)
    finally:
        gc.enable()
        await broker.stop()
