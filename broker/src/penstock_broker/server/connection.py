"""One client connection: bytes in, answers out, strictly in the order of the requests.

In: the transport reads straight into the frame reader's buffer (``BufferedProtocol``); every
whole frame is dispatched at once, in the event loop, without a copy.

Out: answers go into one queue of byte chunks and file slices, sent by ``sendmsg`` (all answers of
a read event in one system call) and ``os.sendfile`` on a duplicate of the socket's descriptor,
because the loop keeps the transport's own for itself. Where sendfile does not exist the slice is
read and sent in pieces.

Bounds: a connection whose peer does not read, or that has too many unanswered requests, is not
read from until that is over; so what it can hold is its frame buffer plus ``OUT_BYTES_MAX`` and
one answer. Records are descriptions of file ranges until the kernel sends them.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Sequence
from typing import Protocol, cast

from penstock_broker.log.slice import FileSlice, LogSlice
from penstock_broker.wire.errors import DecodeError
from penstock_broker.wire.framing import FrameReader

OUT_BYTES_MAX = 1 << 20
"""Unsent answer bytes (files not counted) beyond which a connection is not read from."""
UNANSWERED_MAX = 128
"""Unanswered requests beyond which a connection is not read from."""
SEND_AT_ONCE_MAX = 4 << 20
"""Bytes sent before other connections get their turn."""
CHUNKS_AT_ONCE_MAX = 256
"""Buffers handed to one sendmsg (the kernel takes 1,024)."""
COPY_BYTES = 256 << 10
"""The piece that is read and sent where there is no sendfile."""

_MSG_MORE = getattr(socket, "MSG_MORE", 0)
_HAS_SENDFILE = hasattr(os, "sendfile")


class Pending(Protocol):
    """A request in the order of answers; ``parts`` is None until it is answered."""

    parts: Sequence[bytes | LogSlice] | None

    def closed(self) -> None:
        """The connection ended first."""
        ...


class Host(Protocol):
    """What a connection needs from its server."""

    frame_bytes_max: int

    def admit(self, connection: Connection) -> str | None:
        """Count a new connection; a reason if there is no room for it."""
        ...

    def forget(self, connection: Connection) -> None:
        """The connection has ended."""
        ...

    def say(self, message: str, *arguments: object) -> None:
        """Log what became of a connection, but no more than a log can take."""
        ...

    def dispatch(self, frame: memoryview, connection: Connection) -> None:
        """Handle one request; DecodeError or CloseConnectionError end the connection."""
        ...


class Connection(asyncio.BufferedProtocol):
    """The protocol object that asyncio drives; everything happens in the event loop."""

    def __init__(self, host: Host, loop: asyncio.AbstractEventLoop) -> None:
        self._host = host
        self._loop = loop
        self._frames = FrameReader(host.frame_bytes_max)
        self._pending: deque[Pending] = deque()
        self._out: deque[bytes | memoryview | FileSlice] = deque()
        self._out_bytes = 0
        self._blocked = False  # waiting for the socket to take more
        self._paused = False  # not reading
        self._working = False
        self._transport: asyncio.Transport | None = None
        self._socket: socket.socket | None = None
        self.is_closed = False
        self.client_host = ""
        self.active_at = loop.time()
        self.client_id_raw = b""
        self.client_id: str | None = None

    # -- asyncio -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.client_host = str(peer[0]) if peer else "unknown"
        refusal = self._host.admit(self)
        if refusal is not None:
            self._host.say("connection from %s refused: %s", self.client_host, refusal)
            self.is_closed = True
            self._transport.abort()
            return
        own = transport.get_extra_info("socket")
        try:
            # A duplicate, because the loop refuses writers on a descriptor that a transport owns.
            self._socket = socket.socket(fileno=os.dup(own.fileno()))
            self._socket.setblocking(False)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        except OSError as error:
            self.abort(f"cannot serve it: {error}")

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self._frames.buffer_updated(nbytes)
        self.active_at = self._loop.time()
        self._work()

    def eof_received(self) -> bool | None:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.close()

    # -- requests ----------------------------------------------------------------------------

    def _work(self) -> None:
        """Dispatch the frames that are whole, then send what has become ready."""
        frames = self._frames
        self._working = True
        try:
            while not self.is_closed:
                if self._out_bytes > OUT_BYTES_MAX or len(self._pending) >= UNANSWERED_MAX:
                    self.flush()
                    if self._out_bytes > OUT_BYTES_MAX or len(self._pending) >= UNANSWERED_MAX:
                        self._pause()
                        break
                frame = frames.next_frame()
                if frame is None:
                    break
                self._host.dispatch(frame, self)
            if not self.is_closed:
                frames.release()
        except DecodeError as error:
            self.abort(f"bad request: {error}")
        finally:
            self._working = False
        self.flush()

    def _pause(self) -> None:
        if not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def _maybe_resume(self) -> None:
        if (
            self._paused
            and self._out_bytes <= OUT_BYTES_MAX // 2
            and len(self._pending) < UNANSWERED_MAX
            and self._transport is not None
        ):
            self._paused = False
            self._transport.resume_reading()
            self._loop.call_soon(self._work)  # whole frames may already be in the buffer

    def expect(self, pending: Pending) -> None:
        """Queue a request that is answered later; the answers after it wait for it."""
        self._pending.append(pending)

    def must_queue(self) -> bool:
        """Whether an answer has to wait for one that is not there yet."""
        return bool(self._pending)

    def answered(self) -> None:
        """The ``parts`` of a queued request have been filled in; send what is now in order."""
        while self._pending and self._pending[0].parts is not None:
            self.send(self._pending.popleft().parts or ())
        if not self._working:
            self.flush()
            self._maybe_resume()

    # -- answers -----------------------------------------------------------------------------

    def send(self, parts: Sequence[bytes | LogSlice]) -> None:
        """Queue an answer; it goes out with the next :meth:`flush`."""
        out = self._out
        for part in parts:
            if type(part) is LogSlice:
                out.extend(part.parts)
            else:
                chunk = cast(bytes, part)
                out.append(chunk)
                self._out_bytes += len(chunk)

    def flush(self) -> None:
        """Send as much as the socket takes without waiting."""
        if self._blocked or not self._out or self._socket is None:
            return
        sent = 0
        try:
            while self._out:
                sent += self._send_file() if type(self._out[0]) is FileSlice else self._send_bytes()
                if sent >= SEND_AT_ONCE_MAX:
                    raise BlockingIOError
        except (BlockingIOError, InterruptedError):
            self._blocked = True
            self._loop.add_writer(self._socket.fileno(), self._writable)
        except OSError as error:
            self.abort(None if isinstance(error, ConnectionError) else f"cannot send: {error}")
            return
        self._maybe_resume()

    def _writable(self) -> None:
        if self._socket is None:
            return
        self._loop.remove_writer(self._socket.fileno())
        self._blocked = False
        self.active_at = self._loop.time()
        self.flush()

    def _send_bytes(self) -> int:
        """Send the byte chunks at the head of the queue; the number of bytes taken."""
        out, sock = self._out, cast(socket.socket, self._socket)
        chunks: list[bytes | memoryview] = []
        more = 0
        for chunk in out:
            if type(chunk) is FileSlice:
                more = _MSG_MORE  # one segment for an answer's head and its records
                break
            chunks.append(cast(bytes, chunk))
            if len(chunks) == CHUNKS_AT_ONCE_MAX:
                break
        sent = sock.send(chunks[0], more) if len(chunks) == 1 else sock.sendmsg(chunks, [], more)
        self._out_bytes -= sent
        left = sent
        while left:
            head = cast(bytes, out[0])
            if left < len(head):
                out[0] = memoryview(head)[left:]
                break
            left -= len(head)
            out.popleft()
        return sent

    def _send_file(self) -> int:
        """Send from the file at the head of the queue; the number of bytes taken."""
        piece = cast(FileSlice, self._out[0])
        sock = cast(socket.socket, self._socket)
        if _HAS_SENDFILE and piece.file.fd >= 0:
            sent = os.sendfile(sock.fileno(), piece.file.fd, piece.position, piece.size)
        else:
            size = min(piece.size, COPY_BYTES)
            sent = sock.send(piece.file.read(piece.position, size))
        if sent == 0:
            raise OSError(f"{piece} ended before its {piece.size} bytes")
        self._out.popleft()
        if sent < piece.size:
            rest = FileSlice(piece.file, piece.position + sent, piece.size - sent)
            self._out.appendleft(rest)
        return sent

    # -- the end -----------------------------------------------------------------------------

    def idle_since(self) -> float | None:
        """When the peer was last heard of; None while it waits for us."""
        return None if self._pending and not self._out else self.active_at

    def abort(self, reason: str | None) -> None:
        """End the connection now, with a line in the log if there is something to say."""
        if reason is not None and not self.is_closed:
            self._host.say("connection from %s closed: %s", self.client_host, reason)
        self.close()

    def close(self) -> None:
        """End the connection; what waits for an answer is told that nobody reads it."""
        if self._socket is not None:
            if self._blocked:
                self._loop.remove_writer(self._socket.fileno())
            self._socket.close()
            self._socket = None
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        if not self.is_closed:
            self.is_closed = True
            self._host.forget(self)
        self._out.clear()
        pending, self._pending = self._pending, deque()
        for each in pending:
            each.closed()
