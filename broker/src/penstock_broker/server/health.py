"""Whether the broker lives, and whether it can be used: for probes, and for people.

*Live* means that the event loop answers. *Ready* means that every log is loaded, the listeners
accept, and no partition is offline; the reasons say what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum

from penstock_broker.log.keys import TopicPartition

NAMED_MAX = 100
"""Offline partitions that are named; a disk that is gone takes all of them."""


class Phase(StrEnum):
    """Where the broker is between its start and its end."""

    LOADING = "logs are being loaded"
    OPENING = "the listeners do not accept yet"
    RUNNING = "running"
    STOPPING = "it is stopping"


class Health:
    """``offline`` gives the partitions that cannot be used, with the reason of each."""

    def __init__(self) -> None:
        self.phase = Phase.LOADING
        self.loaded = 0
        """Logs that have been loaded, of :attr:`to_load`."""
        self.to_load = 0
        self.offline: Callable[[], Mapping[TopicPartition, str]] = dict

    def reasons(self) -> list[str]:
        """Why it is not ready; empty when it is."""
        if self.phase is Phase.LOADING and self.to_load:
            return [f"{self.phase.value}: {self.loaded} of {self.to_load}"]
        if self.phase is not Phase.RUNNING:
            return [self.phase.value]
        offline = sorted(self.offline().items())
        named = [f"{topic}-{index} is offline: {why}" for (topic, index), why in offline]
        more = len(named) - NAMED_MAX
        return named if more <= 0 else [*named[:NAMED_MAX], f"{more} more partitions are offline"]
