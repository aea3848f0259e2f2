"""A connection that speaks TLS.

It is accepted and counted like any other, and only then shakes hands, so that half-open ones are
within the bounds; the certificate is the one that is valid at that moment. Records cannot go from
the file to the socket by themselves here: slices are read in pieces, encrypted and written through
asyncio's transport, as fast as that takes them. A piece that is not in the page cache is read in a
thread, and the loop continues meanwhile.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from enum import Enum, auto
from typing import Protocol, cast

from penstock_broker.log.slice import FileSlice
from penstock_broker.server.connection import Connection, Host
from penstock_broker.server.handshakes import HandshakeLine
from penstock_broker.server.sending import Event, Sending

PIECE_BYTES = 128 << 10
"""What is read, encrypted and written at a time."""
TURN_BYTES = 1 << 20
"""Bytes written before other connections get their turn: a millisecond of encryption."""


class Phase(Enum):
    """What a connection is doing before it takes requests; each is followed by the next."""

    ACCEPTED = auto()
    """It may not begin yet: it came too fast (``max.connection.creation.rate``)."""
    IN_LINE = auto()
    """Others shake hands first."""
    SHAKING_HANDS = auto()
    SECURE = auto()
    """It is a connection like any other."""


class TlsHost(Host, Protocol):
    """What a TLS connection needs from its listener in addition."""

    handshake_seconds_max: float
    handshakes: HandshakeLine

    def tls_context(self) -> ssl.SSLContext:
        """The context for a new connection."""
        ...

    def secured(self, connection: Connection, certificate: bytes | None) -> str | None:
        """The handshake is complete, with the client's certificate (DER). A reason to refuse it."""
        ...

    def insecure(self, connection: Connection, reason: str) -> None:
        """The handshake failed."""
        ...


class TlsConnection(Connection):
    """Between being accepted and the end of the handshake it only collects what comes."""

    def __init__(self, host: TlsHost, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(host, loop)
        self._tls_host = host
        self._plain: asyncio.Transport | None = None
        self._handshake: asyncio.Task[None] | None = None
        self._phase = Phase.ACCEPTED

    # -- the handshake -------------------------------------------------------------------------

    def _open(self, transport: asyncio.BaseTransport) -> None:
        self._plain = cast(asyncio.Transport, transport)
        self._plain.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._plain.pause_reading()  # the first bytes are the handshake's
        if sys.version_info < (3, 11, 4):
            # The transport starts to read after this call although it is paused. An end that it
            # read before the handshake would leave the handshake's timer behind.
            self._loop.call_soon(self._pause_again)
        elif not self._stops:
            self._begin()

    def _pause_again(self) -> None:
        if self._plain is not None and self._phase is Phase.ACCEPTED:
            self._plain.resume_reading()
            self._plain.pause_reading()
            if not self._stops:
                self._begin()

    def _begin(self) -> None:
        self._phase = Phase.IN_LINE
        self._tls_host.handshakes.wait(self._my_turn)

    def _my_turn(self) -> None:
        if self._plain is not None and not self.is_closed:
            self._phase = Phase.SHAKING_HANDS
            self._handshake = self._loop.create_task(self._shake_hands(self._plain))

    def _resume(self) -> None:
        if self._phase is Phase.SECURE:
            super()._resume()
        elif self._phase is Phase.ACCEPTED and not self.is_closed:
            self._begin()

    def close(self) -> None:
        super().close()
        self._plain = self._handshake = None

    async def _shake_hands(self, plain: asyncio.Transport) -> None:
        host = self._tls_host
        try:
            transport = await self._loop.start_tls(
                plain,
                self,
                host.tls_context(),
                server_side=True,
                ssl_handshake_timeout=host.handshake_seconds_max,
            )
        except OSError as error:
            # It would keep this connection and itself alive until the next full collection.
            error.__traceback__ = None
            host.insecure(self, _reason(error))
            self.close()
            return
        if transport is None or self.is_closed or plain.is_closing():
            plain.abort()
            self.close()
            return
        self._transport = transport
        tls = cast(ssl.SSLObject, transport.get_extra_info("ssl_object"))
        refusal = host.secured(self, tls.getpeercert(binary_form=True))
        if refusal is not None:
            self.abort(refusal)
            return
        self._phase = Phase.SECURE
        self.active_at = self._loop.time()
        if self._stops:
            transport.pause_reading()
        else:
            self._work()

    def buffer_updated(self, nbytes: int) -> None:
        if self._phase is Phase.SECURE:
            super().buffer_updated(nbytes)
        else:  # came with the handshake's last bytes, before its end is known here
            self._frames.buffer_updated(nbytes)

    # -- answers -------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write until the transport has enough, a file has to be read, or it is others' turn."""
        if self._sending is not Sending.READY or not self._out or self._phase is not Phase.SECURE:
            return
        written = 0
        try:
            while self._out and self._sending is Sending.READY:
                piece = self._next_piece()
                if self._transport is None:
                    return
                if piece:
                    self._transport.write(piece)
                    self._host.bytes_out += len(piece)
                written += len(piece)
                if written >= TURN_BYTES and self._out and self._sending is Sending.READY:
                    self._give_turn()
        except OSError as error:
            self.abort(f"cannot send: {error}")
            return
        self._look_at_backlog()

    def _next_piece(self) -> bytes:
        """The next bytes to write, small answers together; nothing while a file is being read."""
        out = self._out
        chunks: list[bytes | bytearray] = []
        size = 0
        while out and size < PIECE_BYTES:
            head = out[0]
            if type(head) is FileSlice:
                data = self._read_now(head, PIECE_BYTES)
                if data is None:
                    break
                self._advance_file(head, len(data))
            else:
                data = cast(bytes, out.popleft())
                self._out_bytes -= len(data)
            chunks.append(data)
            size += len(data)
        return b"".join(chunks)

    def _read_now(self, piece: FileSlice, most: int) -> bytes | bytearray | None:
        """The bytes of a slice that are in memory; None if a thread has to read first. OSError."""
        size = min(piece.size, most)
        data = piece.file.read_cached(piece.position, size)
        if data:
            return data
        self._on(Event.READ_BEGAN)
        reading = self._loop.run_in_executor(
            self._host.readers, piece.file.read, piece.position, size
        )
        reading.add_done_callback(lambda done: self._has_read(piece, done))
        return None

    def _has_read(self, piece: FileSlice, done: asyncio.Future[bytes]) -> None:
        self._on(Event.READ_ENDED)
        if done.cancelled() or self.is_closed or self._transport is None:
            return
        try:
            data = _whole(done.result(), piece)
        except OSError as error:
            self.abort(f"cannot send: {error}")
            return
        self._advance_file(piece, len(data))
        self._transport.write(data)
        self.flush()

    def pause_writing(self) -> None:
        self._on(Event.TOOK_ENOUGH)
        self._blocked_since = self._loop.time()

    def resume_writing(self) -> None:
        self._on(Event.TAKES_MORE)
        self.active_at = self._loop.time()
        self.flush()

    @property
    def unsent_bytes(self) -> int:
        buffered = self._transport.get_write_buffer_size() if self._transport is not None else 0
        return super().unsent_bytes + buffered

    @property
    def has_unsent(self) -> bool:
        transport = self._transport
        return super().has_unsent or (
            transport is not None and transport.get_write_buffer_size() > 0
        )


def _whole(data: bytes, piece: FileSlice) -> bytes:
    if not data:
        raise OSError(f"{piece} ended before its {piece.size} bytes")
    return data


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return str(error.reason or error)
    return str(error) or type(error).__name__
