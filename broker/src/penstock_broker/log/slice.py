"""Descriptions of bytes: what a read of the log gives. Only the connection moves the bytes.

Neither is changed once made (not frozen, because freezing triples the cost of making one).
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock_broker.log.files import File


@dataclass(slots=True, eq=False)
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

    def fileno(self) -> int:
        """The descriptor for sendfile; -1 on a simulated disk."""
        return self.file.fd

    def after(self, sent: int) -> FileSlice:
        """What is left when the first ``sent`` bytes are gone."""
        return FileSlice(self.file, self.position + sent, self.size - sent)

    def read(self) -> bytes:
        """The bytes; fewer only if the file was truncated meanwhile."""
        return self.file.read(self.position, self.size)


@dataclass(slots=True, eq=False)
class LogSlice:
    """What one partition answers to one fetch: parts in order, ``size`` bytes in all.

    It begins with a whole batch (the one that holds the offset asked for, which may begin before
    it); its end may cut a batch short, which every client drops.
    """

    parts: tuple[FileSlice, ...] = ()
    size: int = 0
    base_offset: int = -1
    """Base offset of the first batch; -1 when empty."""

    def __len__(self) -> int:
        return self.size

    def read(self) -> bytes:
        """All bytes, copied: for tests, internal topics and sockets without sendfile."""
        return b"".join(part.read() for part in self.parts)


EMPTY_SLICE = LogSlice()
