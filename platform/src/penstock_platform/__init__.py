"""Dagster building blocks in which every Kafka record is accounted for.

Component types are importable from here (``type: penstock_platform.TopicComponent``) and loaded
when they are named: the command line and the Spark jobs import this package without Dagster.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock_platform.components.platform_component import PlatformComponent
    from penstock_platform.components.resource_component import PenstockResource, ResourceComponent
    from penstock_platform.components.topic import TopicComponent
    from penstock_platform.quality.suite import QualityComponent

__all__ = [
    "PenstockResource",
    "PlatformComponent",
    "QualityComponent",
    "ResourceComponent",
    "TopicComponent",
]

_HOMES = {
    "PenstockResource": "penstock_platform.components.resource_component",
    "PlatformComponent": "penstock_platform.components.platform_component",
    "QualityComponent": "penstock_platform.quality.suite",
    "ResourceComponent": "penstock_platform.components.resource_component",
    "TopicComponent": "penstock_platform.components.topic",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
