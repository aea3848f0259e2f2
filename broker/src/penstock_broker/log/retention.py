"""What retention deletes: a plan made from facts about segments, and what carries it out.

Kafka's rules. Whole segments go, oldest first, and only where all of the segment is below the
high watermark. By time: a segment goes when its newest record is older than ``retention.ms``; by
records' own timestamps, so a segment whose producers claim to live in the future stays until that
has come. By size: segments go as long as what is left is still at least ``retention.bytes``. The
active segment goes too once it has expired, after a new one has been begun.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import NamedTuple, Protocol

from penstock_broker.clock import Clock
from penstock_broker.errors import KafkaError
from penstock_broker.log.files import ColdReadError, not_waiting
from penstock_broker.log.log import Log
from penstock_broker.metrics import Metrics
from penstock_broker.steps import Step, Work, run

_log = logging.getLogger(__name__)

COLD_LOOKS_MAX = 1_000
"""Reads of indexes that are not in memory, for one log; then the disk is waited for."""


class Sized(Protocol):
    """What the plan asks of a segment."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size(self) -> int: ...


class RetentionPlan(NamedTuple):
    """The oldest segments that go: first those by time, then those by size."""

    by_time: int
    by_size: int
    start_offset: int
    """Where the log begins then; its end where all go: a new segment is to be begun first."""


def plan_retention(
    segments: Sequence[Sized],
    *,
    retention_ms: int,
    retention_bytes: int,
    now_ms: int,
    end_offset: int,
    high_watermark: int,
    newest_ms: Callable[[int], int],
) -> RetentionPlan:
    """Which segments go. The last one is the active one and ends at ``end_offset``.

    ``newest_ms(number)`` is the largest timestamp in a segment; it may cost a read, and is asked
    only of those that could go. Negative limits are none.
    """
    ends = [segment.base_offset for segment in segments[1:]] + [end_offset]
    may_go = sum(end <= high_watermark for end in ends)
    if may_go == len(segments) and segments[-1].size == 0:
        may_go -= 1
    by_time = by_size = 0
    if retention_ms >= 0:
        while by_time < may_go and now_ms - newest_ms(by_time) > retention_ms:
            by_time += 1
    if retention_bytes >= 0:
        excess = sum(segment.size for segment in segments[by_time:]) - retention_bytes
        for segment in segments[by_time:may_go]:
            excess -= segment.size
            if excess < 0:
                break
            by_size += 1
    total = by_time + by_size
    return RetentionPlan(by_time, by_size, ends[total - 1] if total else segments[0].base_offset)


class Retention:
    """Deletes old segments of the logs of a data directory. Owned by the event loop."""

    def __init__(
        self,
        logs: Callable[[], Iterable[Log]],
        starts_job: Callable[[], Work],
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._logs = logs
        self._starts_job = starts_job
        self._clock = clock
        self._metrics = metrics

    def enforce(self, only: Iterable[Log] | None = None) -> int:
        """:meth:`enforcing` at once."""
        return run(self.enforcing(only))

    def enforcing(self, only: Iterable[Log] | None = None) -> Generator[Step, None, int]:
        """Delete what ``retention.ms`` and ``retention.bytes`` say, in logs that are not offline;
        how many segments. OSError: the new starts cannot be written down."""
        deleted = 0
        moved: list[Log] = []
        for log in list(self._logs()) if only is None else only:
            if self.wants(log):
                count = yield from self._moving_start(log)
                deleted += count
                if count:
                    moved.append(log)
        if moved:
            yield self._starts_job()
        for log in moved:
            try:
                log.delete_old_segments()
            except KafkaError as error:
                _log.error("%s", error)
        return deleted

    @staticmethod
    def wants(log: Log) -> bool:
        """Whether old segments of a log may be deleted. Looks at the time of the oldest one, which
        may read its index."""
        config = log.config
        limited = config.retention_ms >= 0 or config.retention_bytes >= 0
        if log.failure is not None or not limited or "delete" not in config.cleanup_policy:
            return False
        if config.retention_ms >= 0:
            try:
                _ = log.segments[0].newest_ms
            except OSError as error:
                log.fail(f"cannot look at its segments: {error}")
                return False
        return True

    def _moving_start(self, log: Log) -> Generator[Step, None, int]:
        """:meth:`_move_start` when another thread has read the indexes that it looks at."""
        for _ in range(COLD_LOOKS_MAX):
            try:
                with not_waiting():
                    return self._move_start(log)
            except ColdReadError as cold:
                try:
                    yield cold.prefetch
                except OSError:
                    break  # reading it here says what is wrong
        return self._move_start(log)

    def _move_start(self, log: Log) -> int:
        """Move the start of a log to where retention wants it; how many segments that leaves."""
        segments, config = log.segments, log.config
        try:
            plan = plan_retention(
                segments,
                retention_ms=config.retention_ms,
                retention_bytes=config.retention_bytes,
                now_ms=self._clock.now_ms(),
                end_offset=log.log_end_offset,
                high_watermark=log.high_watermark,
                newest_ms=lambda number: segments[number].newest_ms,
            )
            count = plan.by_time + plan.by_size
            if not count:
                return 0
            sizes = [segment.size for segment in segments[:count]]
            before = log.log_start_offset
            log.advance_start(plan.start_offset)
        except OSError as error:
            log.fail(f"cannot look at its segments: {error}")
            return 0
        except KafkaError as error:
            _log.warning("%s: %s", log.place.directory, error)
            return 0
        _log.info(
            "%s: retention deletes offsets %d to %d, %d segments (%d by time)",
            log.place.directory, before, plan.start_offset, count, plan.by_time,
        )  # fmt: skip
        for reason, some in (("time", sizes[: plan.by_time]), ("size", sizes[plan.by_time :])):
            if some:
                self._metrics.retention_segments.labels(reason).inc(len(some))
                self._metrics.retention_bytes.labels(reason).inc(sum(some))
        return count
