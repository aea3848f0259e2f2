"""A row of the table of requests: what it asks, how it is refused, and the rights that suffice."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock_broker.errors import ErrorCode
from penstock_broker.security.acls import (
    CLUSTER_NAME,
    Operation,
    ResourceType,
)
from penstock_broker.wire.schema import Struct

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TXN = ResourceType.TRANSACTIONAL_ID
NO_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NO_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
NO_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
NO_TXN = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
REFUSALS = {NO_TOPIC, NO_GROUP, NO_CLUSTER, NO_TXN}
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE

Right = tuple[Operation, ResourceType]


@dataclass
class Scene:
    """What the requests are about: a topic, a group and a transactional id that exist."""

    topic: str
    topic_id: uuid.UUID
    group: str
    txn: str

    def name(self, kind: ResourceType) -> str:
        return {TOPIC: self.topic, GROUP: self.group, CLUSTER: CLUSTER_NAME, TXN: self.txn}[kind]


@dataclass
class Row:
    """One request."""

    api: str
    version: int
    make: Callable[[Scene], Struct]
    refusal: ErrorCode | None
    """None: nothing is refused, and nothing shown."""
    rights: list[list[Right]] = field(default_factory=list)
    """Each of these sets of rights suffices, and nothing less than a whole one of them does."""

    def __str__(self) -> str:
        return f"{self.api}-{self.version}"


def any_acl(cls: type[Any]) -> Any:
    return cls(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter="User:unknown",
        host_filter=None,
        operation=1,
        permission_type=1,
    )


def committed(module: Any, s: Scene) -> Any:
    kind = module.__name__.rpartition(".")[2].title().replace("_", "")
    partition = getattr(module, f"{kind}RequestPartition")
    topic = getattr(module, f"{kind}RequestTopic")
    return topic(name=s.topic, partitions=[partition(partition_index=0, committed_offset=1)])


def codes(value: Any) -> set[int]:
    """Every error code in an answer."""
    found: set[int] = set()
    if isinstance(value, list | tuple):
        for each in value:
            found |= codes(each)
    elif isinstance(value, Struct):
        for name in value.__slots__:
            part = getattr(value, name)
            if name.endswith("error_code") and isinstance(part, int):
                found.add(part)
            else:
                found |= codes(part)
    return found
