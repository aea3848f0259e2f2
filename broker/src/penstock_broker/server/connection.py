"""One client connection: bytes in, answers out, strictly in the order of the requests.

In: the transport reads straight into the frame reader's buffer (``BufferedProtocol``); every
whole frame is dispatched at once, in the event loop, without a copy.

Out: answers go into one queue of byte chunks and file slices, sent by ``sendmsg`` (all answers of
a read event in one system call) and ``os.sendfile``. Where sendfile does not exist the slice is
read and sent in pieces. Records that are not in the page cache are read by a thread first, so that
no slow disk holds up the event loop; what a connection waits for is one state (``sending.py``), and
why it is not read from is one set of reasons (``reading.py``).

Bounds: a connection whose peer does not read, or that has too many unanswered requests, is not
read from until that is over; so what it can hold is its frame buffer plus ``OUT_BYTES_MAX`` and
one answer. Records are descriptions of file ranges until the kernel sends them. Neither is it
read from while a quota mutes it (KIP-219), or while there is no memory for its large frame.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol, cast

from penstock_broker.log.slice import FileSlice, LogSlice
from penstock_broker.quotas.client_quotas import ClientQuota
from penstock_broker.security.session import Session
from penstock_broker.server.reading import WAITS_FOR_US, Stop
from penstock_broker.server.sending import NEXT, WAITS_FOR_PEER, Event, Sending
from penstock_broker.wire.errors import DecodeError
from penstock_broker.wire.framing import CAPACITY, FrameReader

if TYPE_CHECKING:
    from penstock_broker.server.produce_runs import ProduceRuns

OUT_BYTES_MAX = 1 << 20
"""Unsent answer bytes (files not counted) beyond which a connection is not read from."""
UNANSWERED_MAX = 128
"""Unanswered requests beyond which a connection is not read from."""
FRAME_BYTES_PER_SECOND_MIN = 16 << 10
"""A frame that arrives at this rate may take longer than ``request.receive.timeout.ms``."""
QUIET_SECONDS = 10.0
"""A connection that has been silent this long gives its buffer back."""
SEND_AT_ONCE_MAX = 1 << 20
"""Bytes sent before other connections get their turn."""
CHUNKS_AT_ONCE_MAX = 256
"""Buffers handed to one sendmsg (the kernel takes 1,024)."""
COPY_BYTES = 256 << 10
"""The piece that is read and sent where there is no sendfile."""
SENDFILE_BYTES = 1 << 20
"""What is looked up in the page cache, read by a thread if need be, and sent at a time."""

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
    readers: ThreadPoolExecutor
    bytes_in: int
    bytes_out: int

    def admit(self, connection: Connection) -> str | None:
        """Count a new connection; the reason if it is over a limit."""
        ...

    def remove(self, connection: Connection) -> None:
        """The connection has ended."""
        ...

    def log_line(self, message: str, *arguments: object) -> None:
        """Log what became of a connection, but no more than a log can take."""
        ...

    def reserve(self, connection: Connection, size: int) -> bool:
        """Whether a large frame may be received now; else ``may_receive`` follows."""
        ...

    def release(self, connection: Connection) -> None:
        """The frame that was reserved for is there, or never will be."""
        ...

    def dispatch(self, frame: memoryview, connection: Connection) -> None:
        """Handle one request; DecodeError or CloseConnectionError end the connection."""
        ...

    def dispatch_runs(self, frames: FrameReader, connection: Connection) -> int:
        """Handle the next requests together, if they are of those that can be; how many."""
        ...

    def rest(self) -> None:
        """There are no more requests in the buffer: write what they append, and answer them."""
        ...


class Connection(asyncio.BufferedProtocol):
    """The protocol object that asyncio drives; everything happens in the event loop."""

    def __init__(self, host: Host, loop: asyncio.AbstractEventLoop) -> None:
        self._host = host
        self.dispatch: Callable[[memoryview, Connection], None] = host.dispatch
        """Where requests go: elsewhere until the client is authenticated."""
        self._loop = loop
        self._frames = FrameReader(host.frame_bytes_max)
        self._pending: deque[Pending] = deque()
        self._out: deque[bytes | memoryview | FileSlice] = deque()
        self._out_bytes = 0
        self._sending = Sending.READY
        self._fetched = 0  # bytes at the head of the queue that a thread has just read
        self._waiter = -1  # a duplicate of the socket's descriptor, to wait on
        self._blocked_since = 0.0  # when the socket last took anything
        self._stops: set[Stop] = set()  # why it is not read from
        self._muted: asyncio.TimerHandle | None = None  # ends Stop.MUTED, or the connection
        self._reserved = False  # memory
        self._frame_since: float | None = None  # when the current frame began
        self._working = False
        self._transport: asyncio.Transport | None = None
        self._socket: socket.socket | None = None
        self.is_closed = False
        self.client_host = ""
        self.active_at = loop.time()
        self.client_id_raw = b""
        self.client_id: str | None = None
        self.runs: ProduceRuns | None = None
        """What its Produce requests look like; None when the client becomes another user."""
        self.session = Session("", "", "")
        self.when_closed: Callable[[], None] | None = None
        self.user = "ANONYMOUS"
        self.quota: ClientQuota | None = None
        self.quota_generation = -1

    # -- asyncio -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.client_host = str(peer[0]) if peer else "unknown"
        refusal = self._host.admit(self)
        if refusal is not None:
            self._host.log_line("connection from %s refused: %s", self.client_host, refusal)
            self.is_closed = True
            self._transport.abort()
            return
        self._open(transport)

    def _open(self, transport: asyncio.BaseTransport) -> None:
        """The connection has been admitted: begin with it."""
        own = transport.get_extra_info("socket")
        try:
            self._socket = socket.socket(
                fileno=own.fileno()
            )  # the transport's: detached, not closed
            self._socket.setblocking(False)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        except OSError as error:
            self.abort(f"cannot serve it: {error}")

    def become(self, principal: str) -> None:
        """The client has proven to be ``principal``: discard what was decided about it before."""
        self.session.principal = principal
        self.user = principal.partition(":")[2]
        self.quota_generation = -1
        self.runs = None

    def limit_frames(self, frame_bytes_max: int) -> None:
        """The largest frame from now on."""
        self._frames.frame_bytes_max = frame_bytes_max

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self._frames.buffer_updated(nbytes)
        self._host.bytes_in += nbytes
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
        is_new = False
        self._working = True
        try:
            while not (self.is_closed or self._stops):
                if self._out_bytes > OUT_BYTES_MAX or len(self._pending) >= UNANSWERED_MAX:
                    self.flush()
                    if self._out_bytes > OUT_BYTES_MAX or len(self._pending) >= UNANSWERED_MAX:
                        self._stop(Stop.BACKLOG)
                        break
                if self.runs is not None and self._host.dispatch_runs(frames, self):
                    is_new = True
                    continue
                frame = frames.next_frame()
                if frame is None:
                    break
                is_new = True
                self.dispatch(frame, self)
            if not self.is_closed:
                frames.release()
                if frames.buffered or self._reserved:
                    self._track_frame(is_new)
                else:
                    self._frame_since = None
        except DecodeError as error:
            self.abort(f"bad request: {error}")
        finally:
            self._working = False
            self._host.rest()
        self.flush()

    def _track_frame(self, is_new: bool) -> None:
        """Part of a frame is there: note since when, and have memory for it if it is large."""
        awaited = self._frames.awaited
        if self._reserved and (is_new or not awaited):
            self._reserved = False
            self._host.release(self)
        if is_new or not awaited:
            self._frame_since = None
        if awaited > CAPACITY and not self._reserved and Stop.MEMORY not in self._stops:
            self._reserved = self._host.reserve(self, awaited)
            if not self._reserved:
                self._stop(Stop.MEMORY)
        if awaited and not self._stops and self._frame_since is None:
            self._frame_since = self.active_at

    def may_receive(self) -> None:
        """Memory has been reserved for the frame that :meth:`Host.reserve` had no space for."""
        self._reserved = True
        self._end_stop(Stop.MEMORY)

    def hold(self) -> None:
        """Do not read, nor look at what has been read, until :meth:`unhold`."""
        self._stop(Stop.HELD)

    def unhold(self) -> None:
        """What held it is over."""
        self._end_stop(Stop.HELD)

    def soon(self, callback: Callable[[], None]) -> None:
        """Call after other connections have had their turn."""
        self._loop.call_soon(callback)

    def mute(self, seconds: float) -> None:
        """Do not read for so long (KIP-219); what has been answered is sent all the same."""
        if self.is_closed:
            return
        if self._muted is not None:
            if self._muted.when() >= self._loop.time() + seconds:
                return  # it is to be silent for longer already
            self._muted.cancel()
        self._muted = self._loop.call_later(seconds, self._unmute)
        self._stop(Stop.MUTED)

    def hold_and_close(self, seconds: float, reason: str) -> None:
        """Do not read from it, and close it after so long."""
        self.mute(seconds)
        if self._muted is not None:
            self._muted.cancel()
        self._muted = self._loop.call_later(seconds, self.abort, reason)

    def _unmute(self) -> None:
        self._muted = None
        self.active_at = self._loop.time()
        self._end_stop(Stop.MUTED)

    def _stop(self, reason: Stop) -> None:
        """Do not read any more, if it is the first reason."""
        self._frame_since = None  # it is not the peer who is slow
        if not self._stops and self._transport is not None:
            self._transport.pause_reading()
        self._stops.add(reason)

    def _end_stop(self, reason: Stop) -> None:
        """Continue reading, if it was the last reason."""
        if reason in self._stops:
            self._stops.remove(reason)
            if not self._stops:
                self._resume()

    def _resume(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()
            self._loop.call_soon(self._work)  # whole frames may already be in the buffer

    def _look_at_backlog(self) -> None:
        """Answers have been sent: continue reading, if few enough are left."""
        if (
            self._stops
            and self._out_bytes <= OUT_BYTES_MAX // 2
            and len(self._pending) < UNANSWERED_MAX
        ):
            self._end_stop(Stop.BACKLOG)

    def expect(self, pending: Pending) -> None:
        """Queue a request that is answered later; the answers after it wait for it."""
        self._pending.append(pending)
        if pending.parts is not None:
            self._out_bytes += _bytes_of(pending.parts)

    def must_queue(self) -> bool:
        """Whether an answer has to wait for one that is not there yet."""
        return bool(self._pending)

    def answered(self, parts: Sequence[bytes | LogSlice]) -> None:
        """``parts`` of a queued request have been filled in; send what is now in order."""
        self._out_bytes += _bytes_of(parts)
        while self._pending and (ready := self._pending[0].parts) is not None:
            self._pending.popleft()
            self._out_bytes -= _bytes_of(ready)
            self.send(ready)
        if not self._working:
            self.flush()
            self._look_at_backlog()

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
        if self._sending is not Sending.READY or not self._out or self._socket is None:
            return
        sent = 0
        try:
            while self._out and self._sending is Sending.READY:
                sent += self._send_file() if type(self._out[0]) is FileSlice else self._send_bytes()
                if sent >= SEND_AT_ONCE_MAX and self._out and self._sending is Sending.READY:
                    self._give_turn()
        except (BlockingIOError, InterruptedError):
            self._wait()
        except OSError as error:
            self.abort(None if isinstance(error, ConnectionError) else f"cannot send: {error}")
            return
        self._look_at_backlog()

    def _on(self, event: Event) -> None:
        self._sending = NEXT[self._sending, event]

    def _give_turn(self) -> None:
        """Continue when the other connections have had their turn."""
        self._on(Event.TURN_OVER)
        self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._on(Event.NEXT_TURN)
        self.active_at = self._loop.time()
        self.flush()

    def _wait(self) -> None:
        (
            """Continue when the socket takes more. The loop refuses writers on a transport's
        descriptor, so this needs a duplicate: only now, because most connections never need it."""
            ""
        )
        try:
            if self._waiter < 0:
                self._waiter = os.dup(cast(socket.socket, self._socket).fileno())
        except OSError as error:
            self.abort(f"cannot wait for it: {error}")
            return
        self._on(Event.TOOK_ENOUGH)
        self._blocked_since = self._loop.time()
        self._loop.add_writer(self._waiter, self._writable)

    def _writable(self) -> None:
        if self._socket is None:
            return
        self._loop.remove_writer(self._waiter)
        self._on(Event.TAKES_MORE)
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
        self._host.bytes_out += sent
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
        """Send from the file at the head of the queue; the number of bytes taken, 0 when a thread
        has to read them first."""
        piece = cast(FileSlice, self._out[0])
        sock, file = cast(socket.socket, self._socket), piece.file
        size = min(piece.size, self._fetched or SENDFILE_BYTES)
        if not self._fetched and not file.is_cached(piece.position, size):
            self._fetch(piece, size)
            return 0
        if _HAS_SENDFILE and file.fd >= 0:
            sent = os.sendfile(sock.fileno(), file.fd, piece.position, size)
        else:
            sent = sock.send(file.read(piece.position, min(size, COPY_BYTES)))
        if sent == 0:
            raise OSError(f"{piece} ended before its {piece.size} bytes")
        self._host.bytes_out += sent
        self._fetched = max(0, self._fetched - sent)
        self._advance_file(piece, sent)
        return sent

    def _advance_file(self, piece: FileSlice, count: int) -> None:
        self._out.popleft()
        if count < piece.size:
            self._out.appendleft(piece.after(count))

    def _fetch(self, piece: FileSlice, size: int) -> None:
        """Have a thread bring the next bytes into memory. They count as read then, whatever the
        page cache says: it may evict them as fast."""
        self._on(Event.READ_BEGAN)
        work = self._loop.run_in_executor(
            self._host.readers, piece.file.prefetch, piece.position, size
        )
        work.add_done_callback(lambda done: self._has_fetched(size, done))

    def _has_fetched(self, size: int, done: asyncio.Future[None]) -> None:
        self._on(Event.READ_ENDED)
        error = None if done.cancelled() else done.exception()
        if done.cancelled() or self.is_closed:
            return
        if error is not None:
            self.abort(f"cannot send: {error}")
            return
        self._fetched = size
        self.flush()

    # -- the end -----------------------------------------------------------------------------

    def idle_since(self) -> float | None:
        """When the peer last sent or took bytes; None while it waits for the broker."""
        if self._stops & WAITS_FOR_US:
            return None
        return None if self._pending and not self._out else self.active_at

    def overdue(self, now: float, receive_seconds: float, send_seconds: float) -> str | None:
        """What the peer takes too long over, if anything: sending a frame, reading answers."""
        since = self._frame_since
        if since is not None and now - since > receive_seconds:
            rate = self._frames.buffered / (now - since)
            if rate < FRAME_BYTES_PER_SECOND_MIN:
                return f"{self._frames.buffered} bytes of a request in {now - since:.0f} s"
        if self._sending in WAITS_FOR_PEER and now - self._blocked_since > send_seconds:
            return f"its answers were not read for {now - self._blocked_since:.0f} s"
        if now - self.active_at > QUIET_SECONDS:
            self._frames.shrink()
        return None

    @property
    def unsent_bytes(self) -> int:
        """Answers in memory that the peer does not read."""
        return self._out_bytes if self._sending in WAITS_FOR_PEER else 0

    @property
    def has_unsent(self) -> bool:
        """Whether an answer is ready that the peer has not taken yet."""
        return bool(self._out)

    def abort(self, reason: str | None) -> None:
        """End the connection now, with a line in the log if there is something to say."""
        if reason is not None and not self.is_closed:
            self._host.log_line("connection from %s closed: %s", self.client_host, reason)
        self.close()

    def close(self) -> None:
        """End the connection; requests that wait for an answer are cancelled."""
        if self._socket is not None:
            if self._waiter >= 0:
                self._loop.remove_writer(self._waiter)
                os.close(self._waiter)
                self._waiter = -1
            self._socket.detach()
            self._socket = None
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        if not self.is_closed:
            self.is_closed = True
            if self.when_closed is not None:
                self.when_closed()
            self._host.remove(self)
            if self._reserved or Stop.MEMORY in self._stops:
                self._host.release(self)
        if self._muted is not None:
            self._muted.cancel()
            self._muted = None
        self._out.clear()
        self._out_bytes = 0
        pending, self._pending = self._pending, deque()
        for each in pending:
            each.closed()


def _bytes_of(parts: Sequence[bytes | LogSlice]) -> int:
    """What an answer holds in memory."""
    return sum(len(part) for part in parts if type(part) is not LogSlice)
