"""Cuts a byte stream into frames: `size i32` and as many bytes.

Made for `asyncio.BufferedProtocol`: the transport writes straight into `get_buffer()`, and a
frame is a writable view of that same memory, so a record batch goes from the socket to the log
without a copy.

A frame stays untouched until the next call of `next_frame()` or `release()`, even when more bytes
arrive meanwhile. After that its memory is used again; code that needs it longer copies it.
"""

from __future__ import annotations

import struct
from typing import Final

from penstock_broker.wire.errors import DecodeError

FIRST_CAPACITY: Final = 4 * 1024
"""What a connection holds that has sent little, in bytes: thousands of them may be idle."""

CAPACITY: Final = 64 * 1024
"""What a connection holds that sends, in bytes, until :meth:`FrameReader.shrink`."""

BUSY_CAPACITY_MAX: Final = 256 * 1024
"""What a connection may hold instead that fills this buffer too, in bytes."""

FRAMES_AT_ONCE: Final = 24
"""Frames that such a connection has space for: each read costs as much as several of them. Where
`CAPACITY` holds more it stays, because thousands of frames would hold up other connections."""

CAPACITY_KEPT_MAX: Final = 4 * 1024 * 1024
"""A buffer that one large frame made bigger than this is given back after it."""

GROW_AT_ONCE_MAX: Final = 1024 * 1024
"""Up to here the buffer grows to a frame's announced size; beyond, it doubles as bytes arrive."""

_SIZE: Final = struct.Struct(">i")


class FrameReader:
    """One growing buffer and the frames in it."""

    def __init__(self, frame_bytes_max: int, capacity: int = CAPACITY) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._capacity = capacity
        self._view = memoryview(bytearray(min(FIRST_CAPACITY, capacity)))
        self._kept = 0  # start of the frame that is out, else of what is unread
        self._read = 0  # start of what is unread
        self._written = 0

    @property
    def buffered(self) -> int:
        """Bytes received and not yet given out."""
        return self._written - self._read

    @property
    def awaited(self) -> int:
        """The size of the frame that has begun, its size field included; 0 when none has."""
        unread = self._written - self._read
        if unread < 4:
            return 4 if unread else 0
        return int(_SIZE.unpack_from(self._view, self._read)[0]) + 4

    def shrink(self) -> None:
        """Free the memory, if there is nothing in it."""
        if not self._written and len(self._view) > FIRST_CAPACITY:
            self._view = memoryview(bytearray(FIRST_CAPACITY))

    def get_buffer(self, size_hint: int = -1) -> memoryview:
        """Space for the next bytes of the stream, never empty."""
        wanted = self._wanted()
        if self._written == len(self._view) or self._read + wanted > len(self._view):
            self._make_space(wanted)
        return self._view[self._written :]

    def buffer_updated(self, count: int) -> None:
        """The transport has put `count` bytes at the start of the last `get_buffer()`."""
        self._written += count

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Copy bytes in: for transports that bring their own buffers, and for tests."""
        rest = memoryview(data)
        while rest:
            space = self.get_buffer()
            count = min(len(space), len(rest))
            space[:count] = rest[:count]
            self.buffer_updated(count)
            rest = rest[count:]

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its size field, or None until more bytes come.

        Raises DecodeError for a size that is negative or above the maximum, as soon as it is read.
        """
        start = self._kept = self._read
        if self._written - start < 4:
            if start == self._written:
                self._reset()
            return None
        (size,) = _SIZE.unpack_from(self._view, start)
        if not 0 <= size <= self.frame_bytes_max:
            raise DecodeError(f"frame of {size} bytes (at most {self.frame_bytes_max})")
        end = start + 4 + size
        if end > self._written:
            return None
        self._read = end
        return self._view[start + 4 : end]

    def unread(self) -> tuple[memoryview, int, int]:
        """What :meth:`next_frame` has not given out: the buffer (its ``obj`` is a bytearray), and
        where it begins and ends. For callers that know what to expect; see :meth:`advance`."""
        return self._view, self._read, self._written

    @property
    def is_full(self) -> bool:
        """Whether the last bytes took all the space there was, so that more may be waiting."""
        return self._written == len(self._view)

    def advance(self, position: int) -> None:
        """What is unread begins at ``position``: whole frames before it have been dealt with."""
        self._kept = self._read = position

    def release(self) -> None:
        """The frame that is out may be overwritten."""
        self._kept = self._read
        if self._read == self._written:
            self._reset()

    def _wanted(self) -> int:
        """The size of the current frame with its size field, as far as it is trusted."""
        if self._written - self._read < 4:
            return 4
        (size,) = _SIZE.unpack_from(self._view, self._read)
        size = int(size) + 4
        if not 4 <= size <= self.frame_bytes_max + 4:
            return 4  # next_frame refuses it
        return min(size, max(GROW_AT_ONCE_MAX, 2 * (self._written - self._read)))

    def _make_space(self, wanted: int) -> None:
        unread = self._written - self._read
        space = self._capacity
        if self._written == len(self._view) >= space:
            space = max(space, min(FRAMES_AT_ONCE * wanted, BUSY_CAPACITY_MAX))
        is_busy = len(self._view) < space and self._written == len(self._view)
        if (
            self._kept == self._read
            and self._read
            and max(wanted, unread + 1) <= len(self._view)
            and not is_busy
        ):
            self._view[:unread] = self._view[self._read : self._written]
        else:
            grown = memoryview(bytearray(max(wanted, 2 * unread, space)))
            grown[:unread] = self._view[self._read : self._written]
            self._view = grown
        self._kept = self._read = 0
        self._written = unread

    def _reset(self) -> None:
        self._kept = self._read = self._written = 0
        if len(self._view) > CAPACITY_KEPT_MAX:
            self._view = memoryview(bytearray(self._capacity))
