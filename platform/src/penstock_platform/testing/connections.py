"""Connections with given parts: what a test uses instead of real services."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock_platform.connections import Connections
from penstock_platform.settings import Settings


class MemoryConnections(Connections):
    """``Connections`` with some parts of a test's own: ``kafka``, ``archive``, ``lake``, ``clock``.

    Those that are not given are opened as usual, at the addresses of the settings.
    """

    def __init__(self, settings: Settings | None = None, **parts: Any) -> None:
        super().__init__(settings or Settings(home=Path.cwd()))
        for name, part in parts.items():
            setattr(self, name, part)

    def use(self, thing: object) -> None:
        """Take this object for the one of its class (``Connections.shared``)."""
        self._shared[type(thing)] = thing

    def shut(self) -> None:
        """Lose what features keep in memory, as a process does that ends."""
        self._shared.clear()
