"""All logs of a data directory, and the files that they share.

    DIR/clean-shutdown                    there while nothing was written since a clean stop
    DIR/recovery-point-offset-checkpoint  per partition: what is on the disk (checkpoint.py)
    DIR/log-start-offset-checkpoint       per partition: the first offset (checkpoint.py)
    DIR/recovery-report.jsonl             what recovery found and cut, ever (recovery_report.py)
    DIR/metadata.json                     the cluster's metadata (cluster/metadata_file.py)

``data_directory.py`` describes the other names in it.
"""

from __future__ import annotations

import errno
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from penstock_broker.clock import Clock
from penstock_broker.config import LogConfig
from penstock_broker.errors import KafkaError
from penstock_broker.log.checkpoint import CheckpointDamagedError
from penstock_broker.log.data_directory import (
    log_directory_name,
    parse_log_directory_name,
    read_topic_id,
    take_directory,
    write_topic_id,
)
from penstock_broker.log.files import Files, Lock, OsFiles, replace_file
from penstock_broker.log.flushing import FlushJob
from penstock_broker.log.group_flush import GroupFlush
from penstock_broker.log.kept_offsets import KeptOffsets
from penstock_broker.log.keys import TopicPartition
from penstock_broker.log.log import Log
from penstock_broker.log.open_files import OpenFiles
from penstock_broker.log.producer_state import PRODUCERS_MAX
from penstock_broker.log.recovery import LogPlace
from penstock_broker.log.recovery_report import RecoveryReport
from penstock_broker.log.retention import Retention
from penstock_broker.log.scan import BadBatchError
from penstock_broker.log.trash import Trash
from penstock_broker.metrics import Metrics
from penstock_broker.steps import Work

_log = logging.getLogger(__name__)

FLUSH_THREADS = 16
"""Syncs under way at a time when the broker stops."""
CLOSE_THREADS = 8
TO_CHECK_MAX = 256 << 20
"""Bytes of all active segments that a start after a kill may have to read."""
CHECKPOINT_MIN = 4 << 20
"""Bytes of a log that are worth a checkpoint: reading less takes no longer than that."""


class LogManager:
    """The logs of one data directory. Owned by the event loop; not thread-safe."""

    def __init__(
        self, data_dir: Path, clock: Clock, files: Files, metrics: Metrics | None = None
    ) -> None:
        self.metrics = metrics or Metrics()
        self.data_dir = data_dir
        self.was_clean = True
        """Whether the last process that served the directory closed it."""
        self.report = RecoveryReport(data_dir, files, clock, self.metrics)
        self.run_in_background: Callable[[Callable[[], None]], object] = lambda job: job()
        """Runs what takes long and touches no state of ours; here and now unless replaced."""
        self.on_failed: Callable[[TopicPartition], None] = lambda key: None
        """Called when a log goes offline."""
        self.on_start_moved: Callable[[TopicPartition], None] = lambda key: None
        """Called when a log's start has moved."""
        self.producers_max = PRODUCERS_MAX
        """Idempotent producers that each log remembers."""
        self.group_flush = GroupFlush()
        self._clock = clock
        self._files = files
        self._trash = Trash(files, clock)
        self._trash.run_in_background = self._in_background
        self._lock: Lock | None = None
        self._logs: dict[TopicPartition, Log] = {}
        self._points = KeptOffsets(
            files,
            data_dir / "recovery-point-offset-checkpoint",
            lambda log: log.recovery_point,
            zeros=True,
        )
        self._starts = KeptOffsets(
            files,
            data_dir / "log-start-offset-checkpoint",
            lambda log: log.log_start_offset,
            zeros=False,
        )
        self.open_files = OpenFiles(files)
        self.retention = Retention(self._logs.values, self.log_starts_job, clock, self.metrics)
        self._owner = _Owner(self, self._trash)

    # -- opening and closing -----------------------------------------------------------------

    def open(self) -> None:
        """Take the directory: lock, format, checkpoints. :class:`DataDirectoryError`, OSError."""
        self._lock = take_directory(self._files, self.data_dir)
        marker = self.data_dir / "clean-shutdown"
        names = self._files.names(self.data_dir)
        is_new = not any(parse_log_directory_name(name) for name in names)
        self.was_clean = is_new or self._files.exists(marker)
        self._files.remove(marker)
        self._files.sync_directory(self.data_dir)
        leftovers = [self.data_dir / name for name in names if name.endswith("-delete")]
        self._trash.put_renamed(leftovers, 0)
        self._read(self._points)
        self._read(self._starts)

    def _read(self, offsets: KeptOffsets) -> None:
        """Without them, everything is checked."""
        try:
            offsets.load()
        except CheckpointDamagedError as damage:
            _log.warning("%s: all logs are checked from their beginning", damage)
            self.was_clean = False

    def close(self) -> None:
        """Sync and close all logs, write the checkpoints, release the directory.

        A log that is offline, or fails now, leaves the directory marked as not cleanly closed.
        """
        self._flush_all()
        logs = list(self._logs.values())
        if isinstance(self._files, OsFiles) and len(logs) > 1:
            # Three files a log, and a file system may take half a millisecond to create each.
            with ThreadPoolExecutor(CLOSE_THREADS) as pool:
                list(pool.map(_close, logs))
        else:
            for log in logs:
                _close(log)
        clean = all(log.failure is None for log in self._logs.values())
        self.checkpoint_log_starts()
        self.checkpoint_recovery_points()
        if clean:
            replace_file(self._files, self.data_dir / "clean-shutdown", b"")
        self.abandon()

    def abandon(self) -> None:
        """Release the directory without a word in it: not all of its logs have been loaded."""
        self._logs.clear()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _flush_all(self) -> None:
        """Sync all logs at a time: a disk takes many syncs for little more than one."""
        far_behind = set(self.far_behind())
        jobs = [
            job for log in self._logs.values()
            if (job := log.flush_job(with_checkpoint=log in far_behind)) is not None
        ]  # fmt: skip
        if not jobs:
            return
        with ThreadPoolExecutor(min(len(jobs), FLUSH_THREADS)) as pool:
            for job, done in [(job, pool.submit(job.run)) for job in jobs]:
                error = done.exception()
                if error is None:
                    job.log.flushed(job)
                else:
                    job.log.fail(f"cannot sync: {error}")

    # -- logs --------------------------------------------------------------------------------

    def space(self) -> tuple[int, int]:
        """Bytes of the volume under the data directory, and how many are free. OSError."""
        return self._files.space(self.data_dir)

    def get(self, topic: str, partition: int) -> Log | None:
        """An open log."""
        return self._logs.get((topic, partition))

    def logs(self) -> Iterator[Log]:
        """All open logs."""
        return iter(self._logs.values())

    def found(self) -> dict[TopicPartition, uuid.UUID | None]:
        """The logs in the directory, with the topic id that each was created for."""
        self.own_files()
        found = {}
        for name in self._files.names(self.data_dir):
            place = parse_log_directory_name(name)
            if place is not None and self._files.is_directory(self.data_dir / name):
                found[place] = read_topic_id(self._files, self.data_dir / name)
        return found

    def create(
        self,
        topic: str,
        partition: int,
        topic_id: uuid.UUID,
        config: LogConfig,
        *,
        is_lost: bool = False,
    ) -> Log:
        """Make a new, empty log. OSError; FileExistsError where there is one.

        Its name is on the disk after :meth:`sync_names`.
        ``is_lost``: there was one, whose directory has vanished; its offsets are not given out
        again as far as the checkpoints know them.
        """
        directory = self.data_dir / log_directory_name(topic, partition)
        if self._files.exists(directory):
            raise FileExistsError(f"{directory} is there already")
        if not is_lost:
            self._remove_offsets(topic, partition)
            removal = self.removal_of_offsets([(topic, partition)])
            if removal is not None:
                removal()
        try:
            self._files.make_directory(directory)
            write_topic_id(self._files, directory, topic_id)
            log = self._open(topic, partition, config, clean=not is_lost)
        except OSError:
            self._files.remove_tree(directory)
            raise
        self.report.add_recovered(log.recovered)
        return log

    def load(self, topic: str, partition: int, config: LogConfig) -> Log:
        """Open a log that :meth:`found` has listed, checking it unless the stop was clean.

        OSError: it cannot be read; the others can still be opened.
        """
        clean = self.was_clean and (topic, partition) in self._points
        try:
            log = self._open(topic, partition, config, clean=clean)
        except BadBatchError as damage:
            raise OSError(errno.EIO, f"damaged below its recovery point: {damage}") from damage
        self.report.add_recovered(log.recovered)
        try:
            log.delete_old_segments()
        except KafkaError as error:
            _log.error("%s", error)
        return log

    def _open(self, topic: str, partition: int, config: LogConfig, *, clean: bool) -> Log:
        key = (topic, partition)
        place = LogPlace(
            self._files,
            self.data_dir / log_directory_name(topic, partition),
            topic,
            partition,
            config.index_interval_bytes,
        )
        log = Log.open(
            place,
            config,
            self._clock,
            recovery_point=self._points.get(key),
            log_start_offset=self._starts.get(key),
            clean=clean,
        )
        log.producers.producers_max = self.producers_max
        log.owner = self._owner
        self._logs[key] = log
        return log

    def delete(self, logs: Iterable[TopicPartition], *, sync: bool = True) -> None:
        """Delete logs: their directories are renamed at once, and removed in the background.

        With ``sync`` that is on the disk when this returns; else after :meth:`sync_names`.
        OSError of the first that cannot be renamed, after trying the others.
        """
        problem: OSError | None = None
        renamed: list[Path] = []
        delay_ms = 0
        for key in logs:
            log = self._logs.pop(key, None)
            if log is not None:
                log.retire()
                if log.size_bytes:
                    delay_ms = max(delay_ms, log.config.file_delete_delay_ms)
            self._remove_offsets(*key)
            self._trash.give_up(self.data_dir / log_directory_name(*key))
            try:
                renamed += self._rename(*key, "delete")
            except OSError as error:
                problem = problem or error
        if sync:
            self.sync_names()
        self._trash.put_renamed(renamed, delay_ms)
        if problem is not None:
            raise problem

    def _remove_offsets(self, topic: str, partition: int) -> None:
        self._points.remove((topic, partition))
        self._starts.remove((topic, partition))

    def removal_of_offsets(self, keys: Iterable[TopicPartition]) -> Work | None:
        """What another thread has to write down before these logs begin: the offsets of deleted
        ones of their names would hide records. None where nothing is written of them."""
        if not any(self._points.is_written(key) or self._starts.is_written(key) for key in keys):
            return None
        return self.checkpoint_job()

    def set_aside(self, topic: str, partition: int, reason: str) -> None:
        """Keep a log that belongs to no topic under another name."""
        self._logs.pop((topic, partition), None)
        self._remove_offsets(topic, partition)
        for aside in self._rename(topic, partition, "stray"):
            self.sync_names()
            self.report.add(
                "stray", topic=topic, partition=partition, reason=reason, directory=aside.name
            )

    def _rename(self, topic: str, partition: int, suffix: str) -> list[Path]:
        directory = self.data_dir / log_directory_name(topic, partition)
        if not self._files.exists(directory):
            return []
        # A name may have 255 bytes, and a topic nearly as many.
        name = f"{log_directory_name(topic[:200], partition)}.{uuid.uuid4().hex}-{suffix}"
        self._files.rename(directory, self.data_dir / name)
        return [self.data_dir / name]

    def adopt(self, topic: str, partition: int, topic_id: uuid.UUID) -> None:
        """Say which topic a log belongs to where a power cut has lost that. OSError.

        A log of that name can be of no other topic: the old one's directory is renamed before
        another topic gets its name.
        """
        directory = self.data_dir / log_directory_name(topic, partition)
        write_topic_id(self._files, directory, topic_id)

    def sync_names(self) -> None:
        """Return when the names of all logs are on the disk. OSError."""
        self._files.sync_directory(self.data_dir)

    # -- what is written down ----------------------------------------------------------------

    def checkpoint_job(self) -> Work:
        """The job that writes, in any thread, the checkpoints: log starts and recovery points."""
        write_points, write_starts = self._points.job(self._logs), self._starts.job(self._logs)

        def write() -> None:
            write_points()
            write_starts()

        return write

    def log_starts_job(self) -> Work:
        """What writes down, in any thread, where the logs begin now."""
        return self._starts.job(self._logs)

    def checkpoint_recovery_points(self) -> None:
        """Write down what is on the disk, here and now. OSError."""
        self._points.job(self._logs)()

    def checkpoint_log_starts(self) -> None:
        """Write down where the logs begin, here and now. OSError."""
        self._starts.job(self._logs)()

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        """Move the starts of several logs with one checkpoint. KafkaError of any of them."""
        logs = [(self._logs[key], offset) for key, offset in before.items()]
        moved = [log for log, offset in logs if log.advance_start(offset)]
        if moved:
            self.checkpoint_log_starts()
        for log in moved:
            log.delete_old_segments()

    def finish_loading(self) -> None:
        """All logs have been loaded: sum up a start that was not after a clean stop."""
        if not self.was_clean:
            self.report.add_start(len(self._logs))
            self.checkpoint_recovery_points()

    # -- background --------------------------------------------------------------------------

    def empty_trash(self) -> int:
        """Remove, in the background, deleted files whose delay is over; how many deletions."""
        return self._trash.empty()

    def vanished(self) -> list[TopicPartition]:
        """Logs whose directory is not there any more. Looks at the disk: may run in any thread."""
        return [
            key for key, log in list(self._logs.items())
            if log.failure is None and not self._files.exists(log.place.directory)
        ]  # fmt: skip

    def fail_vanished(self, keys: Iterable[TopicPartition]) -> None:
        """Take logs offline whose directory has vanished under them."""
        for key in keys:
            log = self._logs.get(key)
            if log is not None and not self._files.exists(log.place.directory):
                log.fail("its directory has vanished")

    def _in_background(self, job: Callable[[], None]) -> object:
        return self.run_in_background(job)

    def own_files(self) -> None:
        """The calling thread owns the logs from now on, and keeps to the bound on open files."""
        self.open_files.bound(self._logs.values())

    def far_behind(self, at_most: int | None = None) -> list[Log]:
        """Logs to be flushed with a checkpoint, those with the most to check first: few of which a
        start after a kill would have to read more, all together, than it does in a moment."""
        sizes = [(log.bytes_to_check, log) for log in self._logs.values() if log.failure is None]
        total = sum(size for size, _ in sizes)
        if total <= TO_CHECK_MAX:
            return []
        sizes = [each for each in sizes if each[0] >= CHECKPOINT_MIN]
        sizes.sort(key=lambda each: each[0], reverse=True)
        logs = []
        for size, log in sizes[:at_most]:
            logs.append(log)
            total -= size
            if total <= TO_CHECK_MAX // 2:
                break
        return logs

    def flush_jobs(self) -> list[FlushJob]:
        """What is due to be synced: run each in another thread, then :meth:`flushed`."""
        now_ms = self._clock.now_ms()
        jobs = (log.flush_job() for log in self._logs.values() if log.flush_is_due(now_ms))
        return [job for job in jobs if job is not None]

    def flushed(self, jobs: Iterable[FlushJob]) -> None:
        """Record that jobs have run without an error."""
        for job in jobs:
            job.log.flushed(job)

    def expire_producers(self, expiration_ms: int) -> int:
        """Remove producers that have been silent for so long; how many."""
        before_ms = self._clock.now_ms() - expiration_ms
        return sum(log.expire_producers(before_ms) for log in self._logs.values())


class _Owner:
    """What the manager does for its logs: see :class:`.owner.LogOwner`."""

    def __init__(self, manager: LogManager, trash: Trash) -> None:
        self._manager = manager
        self.discard = trash.put

    def start_advanced(self) -> None:
        self._manager.checkpoint_log_starts()

    def start_moved(self, log: Log) -> None:
        self._manager.on_start_moved((log.place.topic, log.place.partition))

    def flush_due(self, log: Log) -> None:
        self._manager.group_flush.request(log)

    def failed(self, log: Log) -> None:
        self._manager.metrics.logs_failed.inc()
        self._manager.on_failed((log.place.topic, log.place.partition))


def _close(log: Log) -> None:
    with suppress(KafkaError):  # the log has said why
        log.close()
