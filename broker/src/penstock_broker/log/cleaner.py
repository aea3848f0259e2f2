"""Which log is compacted when, and what the event loop has to do with it.

The cleaner looks for the log with the largest share of bytes that came since its last compaction
(``min.cleanable.dirty.ratio``), or one whose oldest such record is overdue
(``max.compaction.lag.ms``), and has it compacted by another process (``compaction_worker.py``).
The event loop only chooses, and renames three files for each finished segment.

Only closed segments are touched that are on the disk, below the last stable offset and older than
``min.compaction.lag.ms``. A log in which damage is found is compacted no more until a restart, and
the error log says where it is.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from penstock_broker.clock import Clock
from penstock_broker.config.table import INT64_MAX
from penstock_broker.errors import KafkaError
from penstock_broker.log.compaction import (
    Dirt,
    SealedSegment,
    cleanable_end,
    group_segments,
    measure,
)
from penstock_broker.log.compaction_worker import CompactionFailedError, Worker
from penstock_broker.log.log import Log
from penstock_broker.log.segment import Segment, segment_name
from penstock_broker.log.swap import (
    CLEANED_SUFFIX,
    CleanerCheckpoint,
    swap_path,
    write_cleaner_checkpoint,
)
from penstock_broker.metrics import Metrics

_log = logging.getLogger(__name__)

_INDEX_ENTRY_BYTES = 8


class InThread(Protocol):
    """Runs a job that blocks, elsewhere, and gives its result."""

    def __call__(self, job: Callable[[], Any], /) -> Awaitable[Any]: ...


@dataclass(frozen=True, slots=True)
class _Choice:
    """A log and what of it may be compacted, as it is now."""

    log: Log
    segments: list[Segment]
    """Its closed segments, from the first on, up to where it may be compacted."""
    facts: list[SealedSegment]
    """The same, as the compaction sees them."""
    dirt: Dirt

    @property
    def is_worth_it(self) -> bool:
        return (
            self.dirt.overdue_ms > 0 or self.dirt.ratio > self.log.config.min_cleanable_dirty_ratio
        )


class LogCleaner:
    """Compacts one log after the other. Owned by the event loop."""

    def __init__(
        self,
        logs: Callable[[], Iterable[Log]],
        clock: Clock,
        metrics: Metrics,
        *,
        in_thread: InThread,
        make_worker: Callable[[], Worker],
        map_bytes: int,
    ) -> None:
        self._logs = logs
        self._clock = clock
        self._metrics = metrics
        self._in_thread = in_thread
        self._make_worker = make_worker
        self._map_bytes = map_bytes
        self._refused: dict[Log, str] = {}
        self._failed: set[Log] = set()  # of whose last try nothing came
        self._tried: set[Log] = set()  # of which nothing came in this run
        self._worker: Worker | None = None

    async def clean_all(self) -> int:
        """Compact until no log needs it; how many passes that took.

        A log that fails is tried once, after those that did not fail the last time: one that always
        fails takes nothing from the others.
        """
        passes = 0
        self._tried.clear()
        while (choice := self._choose()) is not None:
            log = choice.log
            if await self._try(choice):
                self._failed.discard(log)
                passes += 1
            else:
                self._failed.add(log)
                self._tried.add(log)
        return passes

    async def _try(self, choice: _Choice) -> bool:
        """Compact a log; whether it went well."""
        log = choice.log
        began = self._clock.monotonic()
        try:
            await self._clean(choice)
        except (CompactionFailedError, OSError, KafkaError) as failure:
            if isinstance(failure, CompactionFailedError) and failure.is_damage:
                self._refused[log] = str(failure)
            self._metrics.cleaner_runs.labels("failed").inc()
            _log.error("%s is not compacted: %s", log.place.directory, failure)
            return False
        self._metrics.cleaner_runs.labels("done").inc()
        self._metrics.cleaner_seconds.observe(self._clock.monotonic() - began)
        return True

    def refused(self) -> dict[str, str]:
        """Logs that are compacted no more, and why."""
        return {str(log.place.directory): reason for log, reason in self._refused.items()}

    def stop(self) -> None:
        """End what is under way; it starts over another time."""
        if self._worker is not None:
            self._worker.close()

    # -- choosing ----------------------------------------------------------------------------

    def _choose(self) -> _Choice | None:
        """Those that did not fail come first, then what is longest overdue, then the dirtiest."""
        logs = list(self._logs())
        self._failed.intersection_update(logs)  # a deleted one is not kept forever
        self._refused = {log: self._refused[log] for log in logs if log in self._refused}
        found = (self._look_at(log) for log in logs if self._may_be_compacted(log))
        return max(
            (choice for choice in found if choice is not None and choice.is_worth_it),
            key=lambda choice: (
                choice.log not in self._failed, choice.dirt.overdue_ms, choice.dirt.ratio,
            ),
            default=None,
        )  # fmt: skip

    def _may_be_compacted(self, log: Log) -> bool:
        return (
            "compact" in log.config.cleanup_policy
            and log.failure is None
            and log not in self._refused
            and log not in self._tried
        )

    def _look_at(self, log: Log) -> _Choice | None:
        config = log.config
        now_ms = self._clock.now_ms()
        segments = list(log.segments)
        first_dirty = _first_dirty(log)
        needs_times = config.min_compaction_lag_ms > 0
        interval = max(1, config.index_interval_bytes)
        try:
            sealed = [
                SealedSegment(
                    segment.base_offset,
                    following.base_offset,
                    segment.size,
                    segment.size // interval * _INDEX_ENTRY_BYTES,
                    segment.newest_ms if needs_times else 0,
                )
                for segment, following in pairwise(segments)
            ]
            end = cleanable_end(
                sealed,
                first_dirty,
                stable_offset=min(log.last_stable_offset, log.recovery_point),
                now_ms=now_ms,
                min_lag_ms=config.min_compaction_lag_ms,
            )
            oldest_ms = None
            if config.max_compaction_lag_ms < INT64_MAX:
                dirty = (s for s, facts in zip(segments, sealed, strict=False)
                         if facts.end_offset > first_dirty and s.size)  # fmt: skip
                oldest_ms = next((segment.oldest_ms for segment in dirty), None)
        except OSError as error:
            log.fail(f"cannot look at its segments: {error}")
            return None
        dirt = measure(
            sealed,
            first_dirty,
            end,
            now_ms=now_ms,
            max_lag_ms=config.max_compaction_lag_ms,
            oldest_dirty_ms=oldest_ms,
        )
        facts = [fact for fact in sealed if fact.end_offset <= end]
        return _Choice(log, segments[: len(facts)], facts, dirt)

    # -- compacting --------------------------------------------------------------------------

    async def _clean(self, choice: _Choice) -> None:
        log = choice.log
        place = log.place
        cleaned = place.directory / f"{uuid.uuid4().hex}{CLEANED_SUFFIX}"
        worker = self._worker = await self._in_thread(self._make_worker)
        try:
            call = worker.call
            begin = self._begin(choice, cleaned)
            await self._in_thread(lambda: call(begin))
            facts = choice.facts
            first_dirty = _first_dirty(log)
            dirty = [list(fact[:3]) for fact in facts if fact.end_offset > first_dirty]
            mapped = await self._in_thread(
                lambda: call({"do": "map", "segments": dirty, "first_dirty": first_dirty})
            )
            end: int = mapped["end_offset"]
            self._metrics.cleaner_read_bytes.inc(mapped["read"])
            by_base = {segment.base_offset: segment for segment in choice.segments}
            for group in group_segments(
                [fact for fact in facts if fact.base_offset < end],
                segment_bytes=log.config.segment_bytes,
                index_bytes=log.config.segment_index_bytes,
            ):
                old = [by_base[fact.base_offset] for fact in group]
                command = {"do": "clean", "segments": [list(fact[:3]) for fact in group]}
                answer = await self._in_thread(lambda command=command: call(command))  # type: ignore[misc]
                self._metrics.cleaner_read_bytes.inc(answer["read"])
                self._metrics.cleaner_written_bytes.inc(answer["size"])
                if answer["changed"]:
                    await self._replace(log, old, group[-1].end_offset, cleaned)
            await self._save_checkpoint(log, CleanerCheckpoint(end, log.cleaned.holes_below))
        finally:
            self._worker = None
            worker.close()
            await self._in_thread(lambda: _remove_tree(log, cleaned))
        _log.info(
            "%s is compacted up to %d: %d bytes of it",
            place.directory, end, choice.dirt.clean_bytes + choice.dirt.dirty_bytes,
        )  # fmt: skip

    def _begin(self, choice: _Choice, cleaned: Path) -> dict[str, Any]:
        log = choice.log
        config = log.config
        return {
            "do": "begin",
            "directory": str(log.place.directory),
            "cleaned": str(cleaned),
            "aborted": [list(entry) for entry in log.aborted_below(choice.facts[-1].end_offset)],
            "producers": [
                [pid, entry.epoch, entry.batches[-1].last_offset if entry.batches else -1]
                for pid, entry in log.producers.producers().items()
            ],
            "map_bytes": self._map_bytes,
            "now_ms": self._clock.now_ms(),
            "delete_retention_ms": config.delete_retention_ms,
            "index_interval_bytes": config.index_interval_bytes,
        }

    async def _replace(self, log: Log, old: list[Segment], end: int, cleaned: Path) -> None:
        """Take a finished segment over. CompactionFailedError: the log is another meanwhile."""
        files, directory = log.place.files, log.place.directory
        base = old[0].base_offset
        if end > log.cleaned.holes_below:
            await self._save_checkpoint(log, CleanerCheckpoint(log.cleaned.first_dirty, end))
        swap = swap_path(directory, base, end)

        def offer() -> None:
            files.rename(cleaned / segment_name(base, ".log"), swap)
            files.sync_directory(directory)

        if log.failure is None:
            await self._in_thread(offer)
            if log.replace_segments(old, swap, cleaned):
                await self._in_thread(lambda: files.sync_directory(directory))
                return
            await self._in_thread(lambda: files.remove(swap))
        raise CompactionFailedError("it has changed meanwhile")

    async def _save_checkpoint(self, log: Log, checkpoint: CleanerCheckpoint) -> None:
        place = log.place
        if log.failure is not None:
            raise CompactionFailedError("it has changed meanwhile")
        await self._in_thread(
            lambda: write_cleaner_checkpoint(place.files, place.directory, checkpoint)
        )
        log.cleaned = checkpoint


def _first_dirty(log: Log) -> int:
    """Where the records begin that no compaction has seen."""
    first, active = log.segments[0].base_offset, log.segments[-1].base_offset
    dirty = log.cleaned.first_dirty
    return max(first, dirty) if dirty <= active else first


def _remove_tree(log: Log, path: Path) -> None:
    try:
        log.place.files.remove_tree(path)
    except OSError as error:
        _log.warning("%s remains until the next start: %s", path, error)
