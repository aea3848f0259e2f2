"""A client without manners: one blocking socket, requests as values, bytes as they come.

    with RawClient(host, port) as client:
        answer = client.ask(MetadataRequest(topics=None), 9)

``send`` and ``receive`` are apart, so that a test can pipeline requests and look at the order of
the answers; ``send_bytes`` sends anything at all.
"""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Any

from penstock_broker.wire.apis import APIS, Api
from penstock_broker.wire.header import RequestHeader, encode_request_header, skip_header_tags
from penstock_broker.wire.schema import Struct, decode, encode

TIMEOUT_SECONDS = 120.0
_BY_REQUEST: dict[type[Struct], Api] = {api.request: api for api in APIS.values()}


class ConnectionClosed(Exception):  # noqa: N818 (an event, not an error)
    """The broker ended the connection."""


class RawClient:
    """One connection."""

    def __init__(self, host: str, port: int, *, client_id: str | None = "raw") -> None:
        self.socket = socket.create_connection((host, port), TIMEOUT_SECONDS)
        self.socket.settimeout(TIMEOUT_SECONDS)
        self._client_id = client_id
        self._correlation_id = 0
        self._sent: dict[int, tuple[Api, int]] = {}

    def frame(self, request: Struct, version: int) -> bytes:
        """The request as it is sent; its answer is expected from now on."""
        api = _BY_REQUEST[type(request)]
        self._correlation_id += 1
        self._sent[self._correlation_id] = (api, version)
        header = RequestHeader(api.key, version, self._correlation_id, self._client_id)
        body = encode_request_header(header, api.flexible(version)) + encode(request, version)
        return struct.pack(">i", len(body)) + body

    def send(self, request: Struct, version: int) -> int:
        """Send a request; its correlation id."""
        self.send_bytes(self.frame(request, version))
        return self._correlation_id

    def send_bytes(self, data: bytes) -> None:
        """Send anything. ConnectionClosed."""
        try:
            self.socket.sendall(data)
        except ConnectionError as error:
            raise ConnectionClosed(str(error)) from error

    def receive(self) -> tuple[int, Any]:
        """The next answer: correlation id and message. ConnectionClosed, TimeoutError."""
        body = self.receive_frame()
        (correlation_id,) = struct.unpack_from(">i", body)
        api, version = self._sent.pop(correlation_id)
        position = 4
        if api.flexible(version) and api.name != "ApiVersions":
            position = skip_header_tags(body, position)
        message, end = decode(api.response, version, memoryview(body), position)
        if end != len(body):
            raise ValueError(f"{len(body) - end} bytes after the answer of {api.name} v{version}")
        return correlation_id, message

    def receive_frame(self) -> bytes:
        """The bytes of the next answer, without their size."""
        (size,) = struct.unpack(">i", self._read(4))
        return self._read(size)

    def ask(self, request: Struct, version: int) -> Any:
        """Send a request and give its answer."""
        expected = self.send(request, version)
        correlation_id, message = self.receive()
        if correlation_id != expected:
            raise ValueError(f"answer {correlation_id} came before {expected}")
        return message

    def is_closed(self) -> bool:
        """Whether the broker closes the connection, without another byte, within the timeout."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def is_silent(self, seconds: float) -> bool:
        """Whether nothing comes for so long."""
        self.socket.settimeout(seconds)
        try:
            self.socket.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(TIMEOUT_SECONDS)
        return False

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                chunk = self.socket.recv(size - len(data))
            except ConnectionError as error:
                raise ConnectionClosed(str(error)) from error
            if not chunk:
                raise ConnectionClosed(f"after {len(data)} of {size} bytes")
            data += chunk
        return bytes(data)

    def close(self) -> None:
        """Hang up."""
        self.socket.close()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
