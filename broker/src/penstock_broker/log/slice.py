"""Descriptions of bytes: what a read of the log gives. Only the connection moves the bytes."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock_broker.log.files import File


@dataclass(frozen=True, slots=True)
class FileSlice:
    """``size`` bytes of ``file`` from ``position``. Holding it holds the file open.

    Send it with ``os.sendfile(socket, slice.file.fd, slice.position, slice.size)``, or read it
    where the descriptor is -1 (simulated disk) or the socket is not plain.
    """

    file: File
    position: int
    size: int

    def __len__(self) -> int:
        return self.size

    def read(self) -> bytes:
        """The bytes; fewer only if the file was cut behind our back."""
        return self.file.read(self.position, self.size)


@dataclass(frozen=True, slots=True)
class LogSlice:
    """What one partition answers to one fetch: parts in order, ``size`` bytes in all.

    It begins with a whole batch (the one that holds the offset asked for, which may begin before
    it); its end may cut a batch short, which every client drops.
    """

    parts: tuple[FileSlice, ...] = ()
    size: int = 0
    base_offset: int = field(default=-1)
    """Base offset of the first batch; -1 when empty."""

    def __len__(self) -> int:
        return self.size

    def read(self) -> bytes:
        """All bytes, copied: for tests, internal topics and sockets without sendfile."""
        return b"".join(part.read() for part in self.parts)


EMPTY_SLICE = LogSlice()
