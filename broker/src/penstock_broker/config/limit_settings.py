"""The settings that bound what clients can make a broker hold or do.

Kafka's names and meanings where Kafka has them; docs/operations/BROKER.md has the table of limits
with what happens at each. The others are ours, because Kafka's answer to the same abuse is memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock_broker.config.table import INT32_MAX, ConfigType, at_least, setting


def parse_overrides(pairs: tuple[str, ...]) -> dict[str, int]:
    """``("10.0.0.1:5", "[::1]:7")`` as counts by address; ValueError."""
    counts: dict[str, int] = {}
    for pair in pairs:
        address, _, count = pair.rpartition(":")
        if not address or int(count) < 0:
            raise ValueError(pair)
        counts[address.removeprefix("[").removesuffix("]")] = int(count)
    return counts


def _check_overrides(pairs: tuple[str, ...]) -> str | None:
    try:
        parse_overrides(pairs)
    except ValueError:
        return "it must be a list of address:count"
    return None


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """Part of :class:`~penstock_broker.config.broker_config.BrokerConfig`."""

    group_coordinator_max_bytes: int = setting(
        "group.coordinator.max.bytes",
        ConfigType.LONG,
        256 << 20,
        "The most memory that groups, their members and offsets may take, about.",
        check=at_least(1 << 20),
    )
    group_coordinator_max_groups: int = setting(
        "group.coordinator.max.groups",
        ConfigType.INT,
        100_000,
        "The most consumer groups.",
        check=at_least(1),
    )
    max_broker_partitions: int = setting(
        "max.broker.partitions",
        ConfigType.INT,
        20_000,
        "The most partitions of all topics together (KIP-578).",
        check=at_least(1),
    )
    max_connection_creation_rate: int = setting(
        "max.connection.creation.rate",
        ConfigType.INT,
        INT32_MAX,
        "The most connections accepted in a second; those beyond it wait (KIP-612).",
        check=at_least(1),
    )
    max_connections: int = setting(
        "max.connections",
        ConfigType.INT,
        INT32_MAX,
        "Maximum number of connections.",
        check=at_least(0),
    )
    max_connections_per_ip: int = setting(
        "max.connections.per.ip",
        ConfigType.INT,
        INT32_MAX,
        "Maximum number of connections from one IP address.",
        check=at_least(0),
    )
    max_connections_per_ip_overrides: tuple[str, ...] = setting(
        "max.connections.per.ip.overrides",
        ConfigType.LIST,
        (),
        "address:count pairs that differ from max.connections.per.ip.",
        check=_check_overrides,
    )
    max_producer_ids_per_partition: int = setting(
        "max.producer.ids.per.partition",
        ConfigType.INT,
        10_000,
        "The most idempotent producers kept for a partition; the longest inactive expire first.",
        check=at_least(1),
    )
    purgatory_max_partitions: int = setting(
        "purgatory.max.partitions",
        ConfigType.INT,
        1_000_000,
        "The most partitions that waiting requests may name, together.",
        check=at_least(0),
    )
    queued_max_request_bytes: int = setting(
        "queued.max.request.bytes",
        ConfigType.LONG,
        256 << 20,
        "The most request bytes received at a time over all connections; -1 means no limit.",
    )
    queued_max_response_bytes: int = setting(
        "queued.max.response.bytes",
        ConfigType.LONG,
        256 << 20,
        "The most answer bytes in memory that clients do not read; -1 means no limit.",
    )
    quota_window_size_seconds: int = setting(
        "quota.window.size.seconds",
        ConfigType.INT,
        1,
        "How many seconds of its quota an idle client may use at once.",
        check=at_least(1),
    )
    request_receive_timeout_ms: int = setting(
        "request.receive.timeout.ms",
        ConfigType.INT,
        30_000,
        "How long a request may take to arrive, unless it comes at 16 KiB a second at least.",
        check=at_least(100),
    )
    transaction_coordinator_max_ids: int = setting(
        "transaction.coordinator.max.ids",
        ConfigType.INT,
        50_000,
        "The most transactional ids.",
        check=at_least(1),
    )
    response_send_timeout_ms: int = setting(
        "response.send.timeout.ms",
        ConfigType.INT,
        600_000,
        "How long a client may take without reading any of its answers.",
        check=at_least(100),
    )
