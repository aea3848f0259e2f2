"""The part of a compaction that takes long, in a process of its own.

Reading and writing a gigabyte of records in Python would take the interpreter away from the event
loop for most of a minute, whatever thread it ran in. So the log cleaner starts this module as a
process, sends it commands on standard input, one JSON object a line, and is answered on standard
output, one line each. It only reads the closed segments of a log and only writes into a directory
``<token>.cleaned`` in it; the broker takes finished segments from there (``swap.py``), so whatever
happens to this process, the log stays as it is. It ends when its input does, or its parent.

On a simulated disk the same :class:`CompactionWork` runs in the test's own thread.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from penstock_broker.log.compaction import (
    Aborted,
    BatchFilter,
    LastOfProducer,
    OffsetMap,
    TransactionTracker,
    read_batches,
)
from penstock_broker.log.files import Files, OsFiles
from penstock_broker.log.scan import BadBatchError
from penstock_broker.log.segment import PlacedBatch, Segment, segment_name
from penstock_broker.wire.errors import DecodeError
from penstock_broker.wire.records import CONTROL_FLAG, RecordBatch

_WRITE_BYTES = 1 << 20
_WRITE_PARTS = 512
_TICK_BATCHES = 512
_NICE = 5


class CompactionFailedError(Exception):
    """The work could not be done; ``str()`` says why."""

    def __init__(self, reason: str, *, is_damage: bool = False) -> None:
        super().__init__(reason)
        self.is_damage = is_damage
        """Whether the log is damaged: trying again will not help."""


class Worker(Protocol):
    """Does one command after the other. Blocks: not for the event loop."""

    def call(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a command. :class:`CompactionFailedError`."""
        ...

    def close(self) -> None:
        """End it, from any thread, also in the middle of a command."""
        ...


class CompactionWork:
    """One compaction: ``begin``, then ``map``, then ``clean`` for each group in order."""

    def __init__(self, files: Files, tick: Callable[[], None] = lambda: None) -> None:
        self._files = files
        self._tick = tick

    def call(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """See the methods of the commands' names."""
        try:
            match command["do"]:
                case "begin":
                    return self._begin(command)
                case "map":
                    return self._map(command["segments"], command["first_dirty"])
                case _:
                    return self._clean(command["segments"])
        except OSError as error:
            raise CompactionFailedError(str(error)) from error
        except (BadBatchError, DecodeError) as error:
            raise CompactionFailedError(str(error), is_damage=True) from error

    def close(self) -> None:
        """Nothing to end: it runs in its caller's thread."""

    def _begin(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """``directory`` of the log, ``cleaned`` the directory to write to, ``aborted``
        [[producer id, first, last offset]], ``producers`` [[id, epoch, last data offset]],
        ``map_bytes``, ``now_ms``, ``delete_retention_ms``, ``index_interval_bytes``."""
        self._directory = Path(command["directory"])
        self._cleaned = Path(command["cleaned"])
        self._index_interval_bytes = command["index_interval_bytes"]
        self._aborted = [Aborted(*entry) for entry in command["aborted"]]
        self._offsets = OffsetMap(command["map_bytes"])
        self._filter = BatchFilter(
            self._offsets,
            TransactionTracker(self._aborted),
            {pid: LastOfProducer(epoch, last) for pid, epoch, last in command["producers"]},
            now_ms=command["now_ms"],
            delete_retention_ms=command["delete_retention_ms"],
        )
        self._files.remove_tree(self._cleaned)
        self._files.make_directory(self._cleaned)
        return {}

    def _map(self, segments: list[tuple[int, int, int]], first_dirty: int) -> dict[str, Any]:
        """Note the keys of ``segments`` [[base, end, size]] from ``first_dirty`` on. Answers
        ``end_offset``: where the map was full, or the end of the last segment."""
        offsets = self._offsets
        transactions = TransactionTracker(self._aborted)
        read = 0
        for base, end, size in segments:
            for batch in self._batches(base, end, size):
                read += batch.size_bytes
                if batch.attributes & CONTROL_FLAG:
                    transactions.ends_nothing(batch)
                elif transactions.is_aborted(batch) or batch.last_offset < first_dirty:
                    pass
                elif not offsets.put(batch):
                    offsets.end_offset = batch.base_offset
                    return self._mapped(read)
            offsets.end_offset = end
        return self._mapped(read)

    def _mapped(self, read: int) -> dict[str, Any]:
        return {"end_offset": self._offsets.end_offset, "keys": len(self._offsets), "read": read}

    def _clean(self, segments: list[tuple[int, int, int]]) -> dict[str, Any]:
        """Make one segment of ``segments`` [[base, end, size]]. Answers ``changed`` (else nothing
        was made), ``size``, ``read``."""
        base, end = segments[0][0], segments[-1][1]
        target = Segment(self._files, self._cleaned, base, self._index_interval_bytes)
        target.create()
        changed = len(segments) > 1
        read = 0
        placed: list[PlacedBatch] = []
        pending = 0
        for source, source_end, size in segments:
            for batch in self._batches(source, source_end, size):
                read += batch.size_bytes
                left = self._filter.apply(batch)
                changed |= left is not batch.view
                if left is None:
                    continue
                newest = int.from_bytes(left[35:43], "big", signed=True)
                placed.append((left, batch.base_offset, len(left), newest))
                pending += len(left)
                if pending >= _WRITE_BYTES or len(placed) >= _WRITE_PARTS:
                    target.append_many(placed)
                    placed, pending = [], 0
        if placed:
            target.append_many(placed)
        if not changed:
            target.remove()
            return {"changed": False, "size": read, "read": read}
        target.sync()
        target.save_indexes(end)
        return {"changed": True, "size": target.size, "read": read}

    def _batches(self, base: int, end: int, size: int) -> Iterator[RecordBatch]:
        file = self._files.open(self._directory / segment_name(base, ".log"))
        next_offset = base
        for number, (position, batch) in enumerate(read_batches(file, size)):
            if number % _TICK_BATCHES == 0:
                self._tick()
            if not next_offset <= batch.base_offset <= batch.last_offset < end:
                reason = f"offsets {batch.base_offset} to {batch.last_offset} in {file.path}"
                raise BadBatchError(position, reason)
            next_offset = batch.next_offset
            yield batch


class WorkerProcess:
    """The same in a process of its own."""

    def __init__(self) -> None:
        """Start it. OSError."""
        # -P: modules in the broker's working directory are not imported.
        command = [sys.executable, "-P", "-m", "penstock_broker.log.compaction_worker"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def call(self, command: Mapping[str, Any]) -> dict[str, Any]:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(command).encode() + b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except (OSError, ValueError) as error:
            raise CompactionFailedError(f"the compaction's process is gone: {error}") from error
        if not line:
            raise CompactionFailedError("the compaction's process has ended")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise CompactionFailedError(answer["error"], is_damage=answer["is_damage"])
        return answer

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


def make_worker(files: Files) -> Worker:
    """A process; where the disk is simulated, or no process can be had, this thread."""
    if isinstance(files, OsFiles) and sys.executable:
        try:
            return WorkerProcess()
        except OSError:
            pass
    return CompactionWork(files)


def main() -> None:
    """Serve commands until the input ends."""
    parent = os.getppid()

    def end_with_parent() -> None:
        if os.getppid() != parent:
            sys.exit(1)

    os.nice(_NICE)
    work = CompactionWork(OsFiles(), end_with_parent)
    for line in sys.stdin:
        try:
            answer = work.call(json.loads(line))
        except CompactionFailedError as error:
            answer = {"error": str(error), "is_damage": error.is_damage}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
