"""Whom quotas are for: entities, which quota holds for a client, what a filter finds.

An entity is a set of (type, name) pairs, of ``user``, ``client-id`` or both, or of ``ip`` alone; a
name of None is the default of its type. Precedence is Kafka's, for each kind of quota on its own:
the first of :func:`precedence` that has a value counts. Values, with where Kafka has them:
``producer_byte_rate`` and ``consumer_byte_rate`` (bytes a second), ``request_percentage`` (of one
thread's time), ``controller_mutation_rate`` (partitions made or deleted a second, KIP-599), and
``connection_creation_rate`` (connections a second, of ``ip``, KIP-612).
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Iterable, Mapping

from penstock_broker.errors import ErrorCode, KafkaError

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

CLIENT_KEYS = (
    PRODUCER_BYTE_RATE,
    CONSUMER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    CONTROLLER_MUTATION_RATE,
)
_WHOLE = {PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, CONNECTION_CREATION_RATE}

Entity = frozenset[tuple[str, str | None]]
Values = Mapping[str, float]


def entity_of(pairs: Iterable[tuple[str, str | None]]) -> Entity:
    """A checked entity. KafkaError INVALID_REQUEST, in Kafka's words."""
    entity: dict[str, str | None] = {}
    for kind, name in pairs:
        if kind not in {USER, CLIENT_ID, IP}:
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if kind in entity:
            raise _invalid(f"Duplicate entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
        entity[kind] = name
    if not entity:
        raise _invalid("Invalid empty client quota entity")
    if IP in entity:
        if len(entity) > 1:
            raise _invalid("Invalid quota entity combination, IP entity should not be combined.")
        entity[IP] = _address(entity[IP])
    return frozenset(entity.items())


def _address(name: str | None) -> str | None:
    try:
        return None if name is None else str(ipaddress.ip_address(name))
    except ValueError:
        raise _invalid(f"{name} is not a valid IP address.") from None


def check_value(entity: Entity, key: str, value: float) -> None:
    """Whether a quota may be set so. KafkaError INVALID_REQUEST."""
    is_ip = any(kind == IP for kind, _ in entity)
    if key not in ((CONNECTION_CREATION_RATE,) if is_ip else CLIENT_KEYS):
        raise _invalid(f"Invalid configuration key {key}")
    if not math.isfinite(value) or value < 0:
        raise _invalid(f"Proposed value for {key} must be a number that is not negative")
    if key in _WHOLE and value != math.floor(value):
        raise _invalid(f"Proposed value for {key} must be an integer")
    if value == 0 and not is_ip:
        raise _invalid(f"Proposed value for {key} must be greater than 0")


def precedence(user: str, client_id: str) -> tuple[Entity, ...]:
    """The entities whose quota may hold for this client, the one that counts first."""
    one_user, any_user = (USER, user), (USER, None)
    one_client, any_client = (CLIENT_ID, client_id), (CLIENT_ID, None)
    return (
        frozenset((one_user, one_client)),
        frozenset((one_user, any_client)),
        frozenset((one_user,)),
        frozenset((any_user, one_client)),
        frozenset((any_user, any_client)),
        frozenset((any_user,)),
        frozenset((one_client,)),
        frozenset((any_client,)),
    )


def bucket_key(entity: Entity, key: str, user: str, client_id: str) -> tuple[str, str, str]:
    """The key of a shared bucket under this entity's quota: (quota, user, client id), "" for any.

    A default gives every user (client id) the same quota, each its own bucket.
    """
    kinds = {kind for kind, _ in entity}
    return key, user if USER in kinds else "", client_id if CLIENT_ID in kinds else ""


def matches(
    entity: Entity, exact: Mapping[str, str | None], present: Iterable[str], strict: bool
) -> bool:
    """DescribeClientQuotas: whether an entity has these names, and any name of these types."""
    names = dict(entity)
    present = list(present)
    if strict and len(names) != len(exact) + len(present):
        return False
    return all(kind in names and names[kind] == name for kind, name in exact.items()) and all(
        kind in names for kind in present
    )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
