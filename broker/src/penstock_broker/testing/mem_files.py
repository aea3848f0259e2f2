"""A disk in memory that can lose power, tear writes, fill up and fail on command.

It simulates ``log.files.OsFiles``. What it keeps apart, because real disks do: what has been
written, which the process sees, and what has been synced, which survives a power cut. Between
syncs each file collects its writes; a power cut keeps any of them, in any combination, the one or
other torn. Names behave as in a journalling file system: of the unsynced changes to a directory a
power cut keeps a first part, in order.

    files = MemFiles()
    ...                                  # let the code under test write
    files = files.power_cut(Random(7))   # what a restarted machine finds
    files = files.kill()                 # what a restarted process finds: everything

A kill or power cut ends the old object: each further use of it is an OSError.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from penstock_broker.clock import Clock
from penstock_broker.log.files import ColdReadError, LockTakenError, must_not_wait
from penstock_broker.wire.primitives import Buffer


class _Write(NamedTuple):
    position: int
    data: bytes


class _Truncate(NamedTuple):
    size: int


class _Node:
    """The content of a file, whatever it is called."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.synced = b""
        self.unsynced: list[_Write | _Truncate] = []
        self.modified_ms = 0
        self.cached = 0  # bytes from its beginning that a prefetch has brought into memory

    def apply(self, change: _Write | _Truncate) -> None:
        if isinstance(change, _Truncate):
            self.data[change.size :] = b""
            self.data.extend(bytes(change.size - len(self.data)))
            return
        self.data.extend(bytes(max(0, change.position - len(self.data))))
        self.data[change.position : change.position + len(change.data)] = change.data

    def cut_power(self, random: Random) -> None:
        """Keep what was synced, and of the rest what the disk happened to have written."""
        changes = [change for change in self.unsynced if random.random() < 0.5]
        random.shuffle(changes)
        self.data = bytearray(self.synced)
        for change in changes:
            if isinstance(change, _Write) and random.random() < 0.3:
                size = random.randrange(len(change.data) + 1)
                self.apply(_Write(change.position, change.data[:size]))
            else:
                self.apply(change)
        self.synced = bytes(self.data)
        self.unsynced = []


_Change = Callable[[dict[Path, _Node]], object]


class _Fault(NamedTuple):
    operation: str
    path_part: str
    error: OSError
    partial_bytes: int


class MemFile:
    """An open file. Its descriptor is -1: there is nothing to sendfile from."""

    fd = -1

    def __init__(self, files: MemFiles, path: Path, node: _Node) -> None:
        self.path = path
        self._files = files
        self._node = node

    def size(self) -> int:
        return len(self._node.data)

    def read(self, position: int, size: int) -> bytes:
        if self._files.is_cold and not self.is_cached(position, size):
            if must_not_wait():
                raise ColdReadError(self, position, size)
            self._files.on_wait("read", self.path)
        self._files.check("read", self.path)
        return bytes(self._node.data[position : position + size])

    def is_cached(self, position: int, size: int) -> bool:
        end = min(position + size, len(self._node.data))
        return not self._files.is_cold or end <= self._node.cached

    def read_cached(self, position: int, size: int) -> bytes | None:
        return self.read(position, size) if self.is_cached(position, size) else None

    def prefetch(self, position: int, size: int) -> None:
        self._files.check("prefetch", self.path)
        self._files.on_wait("prefetch", self.path)
        self._node.cached = max(self._node.cached, position + size)

    def write(self, data: Buffer, position: int) -> None:
        files, node = self._files, self._node
        content = bytes(data)
        try:
            files.check("write", self.path)
            files.check_space(max(0, position + len(content) - len(node.data)))
        except OSError as error:
            part = content[: getattr(error, "partial_bytes", 0)]
            if part:
                self._apply(_Write(position, part))
            raise
        self._apply(_Write(position, content))

    def write_parts(self, parts: Sequence[Buffer], position: int) -> None:
        self.write(b"".join(parts), position)

    def truncate(self, size: int) -> None:
        self._files.check("truncate", self.path)
        self._apply(_Truncate(size))

    def sync(self) -> None:
        self._files.check("sync", self.path)
        self._files.on_wait("sync", self.path)
        self._node.synced = bytes(self._node.data)
        self._node.unsynced = []

    def _apply(self, change: _Write | _Truncate) -> None:
        self._node.apply(change)
        self._node.unsynced.append(change)
        self._node.modified_ms = self._files.now_ms()


class MemLock:
    """A lock on a path of the simulated disk."""

    def __init__(self, held: set[Path], path: Path) -> None:
        self._held = held
        self._path = path

    def close(self) -> None:
        self._held.discard(self._path)


class MemFiles:
    """The simulated disk."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.capacity_bytes: int | None = None
        """The space that all files together may take; None is without end."""
        self.writes = 0
        """Writes so far."""
        self.syncs = 0
        """Syncs of files so far."""
        self.is_cold = False
        """Whether nothing is in memory but what has been prefetched."""
        self.on_wait: Callable[[str, Path], None] = lambda operation, path: None
        """Called in the thread that a real disk would keep waiting: to see which, or to be slow.
        Operations: sync, sync_directory, prefetch, and read of what is not in memory."""
        self._clock = clock
        self._nodes: dict[Path, _Node] = {}
        self._synced_nodes: dict[Path, _Node] = {}
        self._unsynced: list[tuple[Path, _Change]] = []
        self._directories: set[Path] = set()
        self._locks: set[Path] = set()
        self._faults: list[_Fault] = []
        self._dead = False
        self._naming = threading.Lock()

    # -- what a test does --------------------------------------------------------------------

    def fail(
        self,
        operation: str,
        code: int = errno.EIO,
        *,
        path_part: str = "",
        times: int = 1,
        partial_bytes: int = 0,
    ) -> None:
        """Let the next calls of an operation fail, on paths that contain ``path_part``.

        Operations: open, read, prefetch, write, truncate, sync, rename, remove,
        sync_directory. A write that fails has written ``partial_bytes`` of its data.
        """
        error = OSError(code, os.strerror(code))
        self._faults += [_Fault(operation, path_part, error, partial_bytes)] * times

    def heal(self) -> None:
        """Remove failures that have not happened yet."""
        self._faults.clear()

    def put(self, path: Path, data: bytes) -> None:
        """Replace a file's content, synced: to damage it."""
        node = self._nodes.setdefault(path, _Node())
        node.data = bytearray(data)
        node.synced = data
        node.unsynced = []
        self._synced_nodes[path] = node

    def get(self, path: Path) -> bytes:
        """What a file holds."""
        return bytes(self._node(path).data)

    def kill(self) -> MemFiles:
        """End the process: what was written is there for the next."""
        survivor = self._successor()
        survivor._nodes = dict(self._nodes)
        survivor._synced_nodes = dict(self._synced_nodes)
        survivor._unsynced = list(self._unsynced)
        return survivor

    def power_cut(self, random: Random) -> MemFiles:
        """End the machine: what was synced is there, and any part of the rest."""
        survivor = self._successor()
        names = dict(self._synced_nodes)
        for directory in sorted({directory for directory, _ in self._unsynced}):
            changes = [change for at, change in self._unsynced if at == directory]
            for change in changes[: random.randrange(len(changes) + 1)]:
                change(names)
        for node in {id(node): node for node in names.values()}.values():
            node.cut_power(random)
        survivor._nodes = names
        survivor._synced_nodes = dict(names)
        return survivor

    def _successor(self) -> MemFiles:
        self._dead = True
        survivor = MemFiles(self._clock)
        survivor.capacity_bytes = self.capacity_bytes
        survivor._directories = set(self._directories)
        return survivor

    # -- what files ask ----------------------------------------------------------------------

    def check(self, operation: str, path: Path) -> None:
        """Raise what a test has ordered for this call."""
        if self._dead:
            raise OSError(errno.EBADF, "the process that opened it has ended")
        self.writes += operation == "write"
        self.syncs += operation == "sync"
        for number, fault in enumerate(self._faults):
            if fault.operation == operation and fault.path_part in str(path):
                del self._faults[number]
                error = OSError(fault.error.errno, fault.error.strerror, str(path))
                error.partial_bytes = fault.partial_bytes  # type: ignore[attr-defined]
                raise error

    def check_space(self, more: int) -> None:
        """Raise ENOSPC, having written what fits, when the disk would be overfull."""
        if self.capacity_bytes is None:
            return
        left = self.capacity_bytes - sum(len(node.data) for node in list(self._nodes.values()))
        if more > left:
            error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            error.partial_bytes = max(0, left)  # type: ignore[attr-defined]
            raise error

    def now_ms(self) -> int:
        """The time that writes leave on a file."""
        return self._clock.now_ms() if self._clock is not None else 0

    # -- the interface -----------------------------------------------------------------------

    def open(self, path: Path, *, create: bool = False) -> MemFile:
        self.check("open", path)
        if path not in self._nodes:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            node = _Node()
            self._change(path.parent, lambda names: names.__setitem__(path, node))
        return MemFile(self, path, self._nodes[path])

    def exists(self, path: Path) -> bool:
        return path in self._nodes or self.is_directory(path)

    def size(self, path: Path) -> int:
        return len(self._node(path).data)

    def modified_ms(self, path: Path) -> int:
        return self._node(path).modified_ms

    def names(self, directory: Path) -> list[str]:
        children = {path.name for path in list(self._nodes) if path.parent == directory}
        children |= {path.name for path in list(self._directories) if path.parent == directory}
        return sorted(children)

    def is_directory(self, path: Path) -> bool:
        return path in self._directories

    def make_directory(self, path: Path) -> None:
        self._directories |= {path, *path.parents}

    def rename(self, source: Path, target: Path) -> None:
        self.check("rename", source)
        if source in self._directories:
            moved = {d for d in list(self._directories) if d == source or source in d.parents}
            self._directories -= moved
            self._directories |= {target / d.relative_to(source) for d in moved}
            inside = [path for path in list(self._nodes) if source in path.parents]
            # Directories are renamed at once and for good: no code under test relies on less.
            for names in (self._nodes, self._synced_nodes):
                for path in inside:
                    if path in names:
                        names[target / path.relative_to(source)] = names.pop(path)
            return
        node = self._node(source)

        def change(names: dict[Path, _Node]) -> None:
            names.pop(source, None)
            names[target] = node

        self._change(target.parent, change)

    def remove(self, path: Path) -> None:
        self.check("remove", path)
        if path in self._nodes:
            self._change(path.parent, lambda names: names.pop(path, None))

    def remove_tree(self, path: Path) -> None:
        for inside in [p for p in list(self._nodes) if path in p.parents]:
            self.remove(inside)
        self._directories = {
            d for d in list(self._directories) if d != path and path not in d.parents
        }

    def sync_directory(self, path: Path) -> None:
        self.check("sync_directory", path)
        self.on_wait("sync_directory", path)
        with self._naming:
            for directory, change in self._unsynced:
                if directory == path:
                    change(self._synced_nodes)
            self._unsynced = [entry for entry in self._unsynced if entry[0] != path]

    def space(self, path: Path) -> tuple[int, int]:
        used = sum(len(node.data) for node in list(self._nodes.values()))
        total = self.capacity_bytes if self.capacity_bytes is not None else 1 << 40
        return total, max(0, total - used)

    def lock(self, path: Path) -> MemLock:
        if path in self._locks:
            raise LockTakenError(str(path))
        self._locks.add(path)
        self.make_directory(path.parent)
        return MemLock(self._locks, path)

    def _change(self, directory: Path, change: _Change) -> None:
        with self._naming:
            change(self._nodes)
            self._unsynced.append((directory, change))

    def _node(self, path: Path) -> _Node:
        node = self._nodes.get(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return node
