"""Request and response headers.

A request header is `api_key i16, api_version i16, correlation_id i32, client_id nullable string`,
in flexible versions followed by tagged fields; the client id keeps its old form there (KIP-482).
A response header is the correlation id, with tagged fields in flexible versions, except that of
ApiVersions, which never has them: the client does not yet know what the broker speaks.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from penstock_broker.wire.errors import DecodeError
from penstock_broker.wire.primitives import Buffer, skip_tags

API_VERSIONS_KEY: Final = 18

_FIXED: Final = struct.Struct(">hhih")
_SIZE_AND_CORRELATION: Final = struct.Struct(">ii")
_WITH_TAGS: Final = struct.Struct(">iix")


@dataclass(slots=True)
class RequestHeader:
    """What every request begins with."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def decode_request_header(buffer: Buffer, position: int = 0) -> tuple[RequestHeader, int]:
    """Read the part that all header versions share; give the header and the position after it.

    Where the request's version is flexible, `skip_header_tags` continues from there.
    """
    try:
        key, version, correlation_id, size = _FIXED.unpack_from(buffer, position)
        position += 10
        client_id = None
        if size >= 0:
            end = position + size
            if end > len(buffer):
                raise DecodeError("client id runs past the end")
            client_id = str(buffer[position:end], "utf-8")
            position = end
        elif size != -1:
            raise DecodeError("negative client id length")
    except (struct.error, UnicodeDecodeError) as cause:
        raise DecodeError(f"request header: {cause}") from cause
    return RequestHeader(key, version, correlation_id, client_id), position


def skip_header_tags(buffer: Buffer, position: int) -> int:
    """Skip the tagged fields of a flexible header; none are defined for clients."""
    try:
        return skip_tags(buffer, position + 1, buffer[position], 1024)[0]
    except IndexError as cause:
        raise DecodeError("request header: truncated tagged fields") from cause


def encode_request_header(header: RequestHeader, flexible: bool) -> bytes:
    """The client's side: for brokers that talk to brokers, and for tests."""
    client_id = b"" if header.client_id is None else header.client_id.encode()
    size = -1 if header.client_id is None else len(client_id)
    fixed = _FIXED.pack(header.api_key, header.api_version, header.correlation_id, size)
    return fixed + client_id + (b"\0" if flexible else b"")


def response_prefix(correlation_id: int, body_size: int, tagged: bool) -> bytes:
    """The frame's size field and the response header; `tagged` for header version 1."""
    if tagged:
        return _WITH_TAGS.pack(body_size + 5, correlation_id)
    return _SIZE_AND_CORRELATION.pack(body_size + 4, correlation_id)
