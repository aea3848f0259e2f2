"""How much one request may ask for, where it cannot be handled in steps."""

from __future__ import annotations

from typing import Final

from penstock_broker.errors import ErrorCode, KafkaError

FETCH_PARTITIONS_MAX: Final = 10_000
PRODUCE_PARTITIONS_MAX: Final = 10_000
GROUP_PROTOCOLS_MAX: Final = 100
LEAVING_MEMBERS_MAX: Final = 10_000
REBALANCE_TIMEOUT_MS_MAX: Final = 24 * 3_600_000
"""A member that asks for more time to rejoin (``max.poll.interval.ms``) gets this."""


def require_at_most(count: int, most: int, what: str) -> None:
    """INVALID_REQUEST for a request that names too many things."""
    if count > most:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"{count} {what} are more than one request may name, {most}."
        )
