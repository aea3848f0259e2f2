"""The disk, as the log sees it: a small interface with one real implementation.

Its simulation is ``penstock_broker.testing.mem_files``, which tears writes, loses what was not
synced, and fails on command. All disk access of the storage layer goes through here.

What is promised: bytes written are seen by every later read of the process. What is not: that
they survive a power cut before ``sync``; that a new, renamed or removed name survives one before
``sync_directory`` of its folder.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from penstock_broker.wire.primitives import Buffer

OWNER_ONLY = 0o600
"""Records and SCRAM verifiers are for no other user of the machine."""


class LockTakenError(Exception):
    """Another process holds the lock."""


class ColdReadError(Exception):
    """What is to be read is not in memory: :meth:`prefetch` it elsewhere, and do it all again."""

    def __init__(self, file: File, position: int, size: int) -> None:
        super().__init__(f"{file.path} is not in memory at {position}")
        self.file = file
        self.position = position
        self.size = size

    def prefetch(self, more: int = 0) -> None:
        """Bring it into memory, and ``more`` bytes behind it; in any thread. OSError."""
        self.file.prefetch(self.position, self.size + more)


class _Waiting:
    """The thread that must not wait for the disk just now: at most one, the event loop's."""

    __slots__ = ("not_in",)

    def __init__(self) -> None:
        self.not_in = 0


_waiting = _Waiting()


@contextmanager
def not_waiting() -> Iterator[None]:
    """Reads of this thread raise :class:`ColdReadError` instead of waiting for the disk. What is
    done in the block has to be such that it can be done again."""
    before, _waiting.not_in = _waiting.not_in, threading.get_ident()
    try:
        yield
    finally:
        _waiting.not_in = before


@contextmanager
def waiting() -> Iterator[None]:
    """In a block of :func:`not_waiting`: what cannot be done again, and waits after all."""
    before, _waiting.not_in = _waiting.not_in, 0
    try:
        yield
    finally:
        _waiting.not_in = before


def must_not_wait() -> bool:
    """Whether the calling thread is in a block of :func:`not_waiting`."""
    return _waiting.not_in != 0 and _waiting.not_in == threading.get_ident()


class File(Protocol):
    """An open file, read and written at positions.

    It closes when nothing refers to it any more, so a reader that has a slice of a segment keeps
    the bytes although the segment has been deleted meanwhile.
    """

    @property
    def path(self) -> Path:
        """The name it was opened under."""
        ...

    @property
    def fd(self) -> int:
        """The descriptor, for sendfile; -1 where the file has none (use :meth:`read`)."""
        ...

    def size(self) -> int:
        """Its length in bytes."""
        ...

    def read(self, position: int, size: int) -> bytes:
        """``size`` bytes at ``position``, fewer where the file ends. ColdReadError in a block of
        :func:`not_waiting`, where the disk would have to be waited for."""
        ...

    def is_cached(self, position: int, size: int) -> bool:
        """Whether reading these bytes waits for no disk. Looks at one page of every 64 KiB, and
        True where the system does not say."""
        ...

    def read_cached(self, position: int, size: int) -> bytes | bytearray | None:
        """As :meth:`read`, the part of it that is in memory; None where the disk has to be read, or
        the system does not say."""
        ...

    def prefetch(self, position: int, size: int) -> None:
        """Return when these bytes are in memory; not for the event loop's thread. OSError."""
        ...

    def write(self, data: Buffer, position: int) -> None:
        """Write all of ``data``, or raise OSError with any part of it written."""
        ...

    def write_parts(self, parts: Sequence[Buffer], position: int) -> None:
        """As :meth:`write`, for several buffers that follow each other."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes."""
        ...

    def sync(self) -> None:
        """Return when everything written is on the disk (fdatasync). Safe in another thread."""
        ...


class Lock(Protocol):
    """A lock that is held until closed, or until the process dies."""

    def close(self) -> None: ...


class Files(Protocol):
    """A disk."""

    def open(self, path: Path, *, create: bool = False) -> File:
        """Open for reading and writing; FileNotFoundError unless ``create``."""
        ...

    def exists(self, path: Path) -> bool: ...

    def size(self, path: Path) -> int:
        """The length of a file that is not open; FileNotFoundError where there is none."""
        ...

    def modified_ms(self, path: Path) -> int:
        """When the file was last written, in milliseconds since the epoch."""
        ...

    def names(self, directory: Path) -> list[str]:
        """The sorted names in a directory."""
        ...

    def is_directory(self, path: Path) -> bool: ...

    def make_directory(self, path: Path) -> None:
        """Create a directory and its missing parents; it may be there already."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file (replacing the target) or a directory."""
        ...

    def remove(self, path: Path) -> None:
        """Remove a file; none there is fine."""
        ...

    def remove_tree(self, path: Path) -> None:
        """Remove a directory with what it holds; none there is fine."""
        ...

    def sync_directory(self, path: Path) -> None:
        """Return when the names in a directory are on the disk."""
        ...

    def space(self, path: Path) -> tuple[int, int]:
        """Bytes of the volume that holds a directory, and how many of them may still be used."""
        ...

    def lock(self, path: Path) -> Lock:
        """Take an exclusive lock; :class:`LockTakenError` when another process has it."""
        ...


# The last holder of a file may be another thread, or the same one while it opens another.
_counting = threading.RLock()


class OsFile:
    """A file of the operating system, as a plain descriptor."""

    __slots__ = ("_files", "fd", "path")

    def __init__(self, path: Path, fd: int, files: OsFiles | None = None) -> None:
        self.path = path
        self.fd = fd
        self._files = files
        if files is not None:
            with _counting:
                files.open_files += 1

    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def read(self, position: int, size: int) -> bytes:
        if _waiting.not_in and must_not_wait():
            return self._read_whole_from_cache(position, size)
        return os.pread(self.fd, size, position)

    def _read_whole_from_cache(self, position: int, size: int) -> bytes:
        if _NOWAIT is None:
            return os.pread(self.fd, size, position)
        buffer = memoryview(bytearray(size))
        done = 0
        while done < size:
            try:
                count = os.preadv(self.fd, (buffer[done:],), position + done, _NOWAIT)
            except BlockingIOError:
                raise ColdReadError(self, position, size) from None
            except OSError:  # not known to this file system
                return os.pread(self.fd, size, position)
            if not count:
                break
            done += count
        return bytes(buffer[:done])

    def is_cached(self, position: int, size: int) -> bool:
        if _NOWAIT is None:
            return True
        next_probe = position - position % _PROBE_BYTES + _PROBE_BYTES
        preadv, fd = os.preadv, self.fd
        try:
            preadv(fd, _ONE_BYTE, position, _NOWAIT)
            for at in range(next_probe, position + size, _PROBE_BYTES):
                preadv(fd, _ONE_BYTE, at, _NOWAIT)
        except BlockingIOError:
            return False
        except OSError:  # not known to this file system
            return True
        return True

    def read_cached(self, position: int, size: int) -> bytearray | None:
        if _NOWAIT is None:
            return None
        buffer = bytearray(size)
        try:
            count = os.preadv(self.fd, (buffer,), position, _NOWAIT)
        except OSError:  # not in memory, or not known to this file system
            return None
        if count < size:
            del buffer[count:]
        return buffer or None

    def prefetch(self, position: int, size: int) -> None:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self.fd, position, size, os.POSIX_FADV_WILLNEED)
        while size > 0:
            count = len(os.pread(self.fd, min(size, _PROBE_BYTES), position))
            if not count:
                return
            position += count
            size -= count

    def write(self, data: Buffer, position: int) -> None:
        written = os.pwrite(self.fd, data, position)
        if written != len(data):
            # A nearly full disk takes a part; the next call says why.
            rest = memoryview(data)[written:]
            while rest:
                position += written
                written = os.pwrite(self.fd, rest, position)
                rest = rest[written:]

    def write_parts(self, parts: Sequence[Buffer], position: int) -> None:
        size = sum(map(len, parts))
        if len(parts) > _IOV_MAX or _pwritev(self.fd, parts, position) != size:
            self.write(b"".join(parts), position)

    def truncate(self, size: int) -> None:
        os.ftruncate(self.fd, size)

    def sync(self) -> None:
        _datasync(self.fd)

    def __del__(self) -> None:
        fd, self.fd = getattr(self, "fd", -1), -1
        if fd >= 0:
            os.close(fd)
            if self._files is not None:
                with _counting:
                    self._files.open_files -= 1


# Linux: read what is in memory only.
_NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None)
_ONE_BYTE = (bytearray(1),)
_PROBE_BYTES = 64 << 10
"""The system reads ahead, and evicts, in larger pieces than pages."""
_F_FULLFSYNC: int = getattr(fcntl, "F_FULLFSYNC", -1)


def _full_sync(fd: int) -> None:
    """macOS: fsync leaves the data in the drive's cache, F_FULLFSYNC does not (nor does Java)."""
    try:
        fcntl.fcntl(fd, _F_FULLFSYNC)
    except OSError:  # a file system that does not know it, such as a network's
        os.fsync(fd)


# Before macOS 11 there is no pwritev; the parts are then joined.
_IOV_MAX = 1024 if hasattr(os, "pwritev") else 0
_pwritev: Callable[[int, Sequence[Buffer], int], int] = getattr(os, "pwritev", lambda *_: -1)
# macOS has no fdatasync.
_datasync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
if _F_FULLFSYNC >= 0:
    _datasync = _full_sync


class OsLock:
    """An exclusive flock on a file."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            raise LockTakenError(str(path)) from None

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class OsFiles:
    """The machine's disk.

    Before more than ``open_files_max`` files are open at a time, ``on_many_open`` is called, in the
    thread that ``owner`` names: it is to close files that can be
    opened again later. The limit is soft: files that cannot be closed stay open.
    """

    __slots__ = ("on_many_open", "open_files", "open_files_max", "owner")

    def __init__(self) -> None:
        self.open_files = 0
        self.open_files_max = 1 << 30
        self.on_many_open: Callable[[], None] = lambda: None
        self.owner = threading.get_ident()

    def open(self, path: Path, *, create: bool = False) -> OsFile:
        if self.open_files >= self.open_files_max and threading.get_ident() == self.owner:
            self.on_many_open()
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return OsFile(path, os.open(path, flags, OWNER_ONLY), self)

    def exists(self, path: Path) -> bool:
        return path.exists()

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def modified_ms(self, path: Path) -> int:
        return path.stat().st_mtime_ns // 1_000_000

    def names(self, directory: Path) -> list[str]:
        return sorted(entry.name for entry in directory.iterdir())

    def is_directory(self, path: Path) -> bool:
        return path.is_dir()

    def make_directory(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)

    def rename(self, source: Path, target: Path) -> None:
        source.replace(target)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def remove_tree(self, path: Path) -> None:
        if path.exists():
            shutil.rmtree(path)

    def sync_directory(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def space(self, path: Path) -> tuple[int, int]:
        volume = os.statvfs(path)
        return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize

    def lock(self, path: Path) -> OsLock:
        return OsLock(path)


class ReadOnlyFiles(OsFiles):
    """The machine's disk, with every file opened for reading alone."""

    __slots__ = ()

    def open(self, path: Path, *, create: bool = False) -> OsFile:
        return OsFile(path, os.open(path, os.O_RDONLY))


def read_file(files: Files, path: Path) -> bytes:
    """The whole of a small file; FileNotFoundError where there is none."""
    file = files.open(path)
    return file.read(0, file.size())


def replace_file(files: Files, path: Path, data: bytes, *, sync: bool = True) -> None:
    """Replace a small file by ``data``: after a crash it holds the old or the new content.

    Written beside, synced, renamed over, and the folder synced. Without ``sync`` that holds for a
    kill only: after a power cut it may hold a part of the new.
    """
    beside = path.with_name(path.name + ".tmp")
    file = files.open(beside, create=True)
    file.truncate(0)
    file.write(data, 0)
    if sync:
        file.sync()
    files.rename(beside, path)
    if sync:
        files.sync_directory(path.parent)


def append_line(files: Files, path: Path, line: bytes) -> None:
    """Add a line to a file and sync it; a torn last line of an earlier crash is closed first."""
    file = files.open(path, create=True)
    end = file.size()
    if end and file.read(end - 1, 1) != b"\n":
        line = b"\n" + line
    file.write(line + b"\n", end)
    file.sync()
    files.sync_directory(path.parent)
