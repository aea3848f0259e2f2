"""Everything the assets talk to, opened when it is first used: one object, one home.

A run that only reads offsets never imports PySpark; a sensor never opens a session. Tests put
another object with the same attributes in its place.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from penstock_platform.domain.archive_keys import window_key
from penstock_platform.resources.clock import SystemClock
from penstock_platform.settings import Settings

if TYPE_CHECKING:
    from penstock_platform.domain.clock import Clock
    from penstock_platform.domain.windows import Window
    from penstock_platform.resources.alerts import Alerts
    from penstock_platform.resources.archive import S3Archive
    from penstock_platform.resources.kafka import KafkaCluster
    from penstock_platform.resources.lake import Lake
    from penstock_platform.resources.spark import SparkConnect
    from penstock_platform.resources.windows import WindowStore


@lru_cache(maxsize=8)
def _opened(text: str) -> Connections:
    return Connections(Settings.model_validate_json(text))


def connections_of(settings: Settings) -> Connections:
    """The connections of these settings, opened once a process. Safe to share between threads."""
    return _opened(settings.model_dump_json())


class Connections:
    """Lazily opened connections to the services of one home."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @cached_property
    def clock(self) -> Clock:
        return SystemClock()

    @cached_property
    def archive(self) -> S3Archive:
        from penstock_platform.resources.archive import S3Archive  # noqa: PLC0415

        return S3Archive(self.settings)

    @cached_property
    def windows(self) -> WindowStore:
        from penstock_platform.resources.windows import WindowStore  # noqa: PLC0415

        return WindowStore(self.archive)

    @cached_property
    def kafka(self) -> KafkaCluster:
        from penstock_platform.resources.kafka import KafkaCluster  # noqa: PLC0415

        return KafkaCluster(self.settings)

    @cached_property
    def lake(self) -> Lake:
        from penstock_platform.resources.lake import Lake  # noqa: PLC0415

        return Lake(self.settings)

    @cached_property
    def spark(self) -> SparkConnect:
        from penstock_platform.resources.spark import SparkConnect  # noqa: PLC0415

        return SparkConnect(self.settings)

    @cached_property
    def alerts(self) -> Alerts:
        from penstock_platform.resources.alerts import Alerts  # noqa: PLC0415

        return Alerts.from_settings(self.settings)

    def window_uri(self, window: Window) -> str:
        """Where the window object lies in the archive."""
        return f"{self.archive.uri}/{window_key(window.ref, window.sequence)}"
