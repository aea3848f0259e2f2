"""What an append answers."""

from __future__ import annotations

from dataclasses import dataclass

from penstock_broker.errors import KafkaError


@dataclass(slots=True, eq=False)
class AppendResult:
    """Where a batch was put. A repeated one (``duplicate``) has the place of its first attempt."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    """The time given to its records under LogAppendTime; -1 under CreateTime."""
    log_start_offset: int
    duplicate: bool = False
    error: KafkaError | None = None
    """Why it is not in the log after all: the write that it was staged for has failed."""
