"""Everything the assets talk to, opened when it is first used: one object, one home.

A run that only reads offsets never imports PySpark; a sensor never opens a session. Tests put
another object with the same attributes in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from threading import RLock
from typing import TYPE_CHECKING, TypeVar, cast

from penstock_platform.extras import require_extra
from penstock_platform.settings import Settings
from penstock_platform.system_clock import SystemClock

if TYPE_CHECKING:
    from penstock_platform.archive.store import S3Archive
    from penstock_platform.clock import Clock
    from penstock_platform.kafka.cluster import KafkaCluster
    from penstock_platform.lake.spark_connect import SparkConnect
    from penstock_platform.lake.spark_content import SparkContent
    from penstock_platform.lake.tables import Lake

T = TypeVar("T")


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
        self._shared: dict[type, object] = {}
        self._lock = RLock()

    @cached_property
    def clock(self) -> Clock:
        return SystemClock()

    @cached_property
    def archive(self) -> S3Archive:
        from penstock_platform.archive.store import S3Archive  # noqa: PLC0415

        return S3Archive(self.settings)

    @cached_property
    def kafka(self) -> KafkaCluster:
        from penstock_platform.kafka.cluster import KafkaCluster  # noqa: PLC0415

        return KafkaCluster(self.settings)

    @cached_property
    def lake(self) -> Lake:
        from penstock_platform.lake.tables import Lake  # noqa: PLC0415

        return Lake(self.settings, self._spark_content)

    @cached_property
    def spark(self) -> SparkConnect:
        from penstock_platform.lake.spark_connect import SparkConnect  # noqa: PLC0415

        return SparkConnect(self.settings)

    def _spark_content(self) -> SparkContent:
        require_extra("pyspark")
        from penstock_platform.lake.spark_content import SparkContent  # noqa: PLC0415 - 1.5 s

        return SparkContent(self.spark)

    def shared(self, kind: type[T], make: Callable[[], T]) -> T:
        """What a feature keeps once for these connections: made by ``make`` when it is first asked
        for, by its class."""
        with self._lock:
            if kind not in self._shared:
                self._shared[kind] = make()
            return cast("T", self._shared[kind])
