"""What both APIs that alter settings share: topics and brokers as resources with overrides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Protocol

from penstock_broker.api.context import Services
from penstock_broker.cluster.topic import Topic, check_topic_name
from penstock_broker.config import ConfigEntry
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.steps import Step
from penstock_broker.wire.messages.describe_configs import RESOURCE_BROKER, RESOURCE_TOPIC


class Resource(Protocol):
    """A resource of either request."""

    resource_type: int
    resource_name: str


class Named(Protocol):
    """A setting in either request."""

    name: str
    value: str | None


def repeated(resources: Sequence[Resource]) -> frozenset[tuple[int, str]]:
    """Resources that a request names more than once: INVALID_REQUEST for each."""
    named = Counter((r.resource_type, r.resource_name) for r in resources)
    return frozenset(key for key, count in named.items() if count > 1)


def check_once(resource: Resource, twice: frozenset[tuple[int, str]]) -> None:
    """INVALID_REQUEST for a resource that is named twice."""
    if (resource.resource_type, resource.resource_name) in twice:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")


def check_settings(settings: Iterable[Named]) -> None:
    """INVALID_REQUEST for a setting that is named twice."""
    names = [setting.name for setting in settings]
    if len(set(names)) != len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")


def null_value(name: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {name}")


def overrides(services: Services, resource: Resource) -> Mapping[str, str]:
    """What is set for a resource. KafkaError: INVALID_REQUEST, INVALID_TOPIC_EXCEPTION,
    UNKNOWN_TOPIC_OR_PARTITION."""
    if resource.resource_type == RESOURCE_BROKER:
        return services.broker_configs.overrides(resource.resource_name)
    return _topic(services, resource).configs


def entry(services: Services, resource: Resource, name: str) -> ConfigEntry | None:
    """A setting of a resource as it is in force; None where it has none of that name."""
    if resource.resource_type == RESOURCE_BROKER:
        found = services.broker_configs.describe(str(services.config.broker_id), [name])
    else:
        found = services.topics.describe(_topic(services, resource), [name])
    return found[0] if found else None


def putting(
    services: Services, resource: Resource, values: Mapping[str, str], *, validate_only: bool
) -> Generator[Step, None, None]:
    """Replace what is set for a resource. KafkaError as :func:`overrides`, and INVALID_CONFIG,
    KAFKA_STORAGE_ERROR."""
    if resource.resource_type == RESOURCE_BROKER:
        name = resource.resource_name
        yield from services.broker_configs.putting(name, values, validate_only=validate_only)
    else:
        topic = _topic(services, resource)
        yield from services.topics.setting_configs(topic, values, validate_only=validate_only)


def _topic(services: Services, resource: Resource) -> Topic:
    name = resource.resource_name
    if resource.resource_type != RESOURCE_TOPIC:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}"
        )
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    check_topic_name(name)
    topic = services.metadata.topic(name)
    if topic is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
        )
    return topic
