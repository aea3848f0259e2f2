"""Typed message classes, and their codecs compiled once per (class, version).

    class DeleteGroupsRequest(Struct, versions=range(3), flexible_from=2):
        groups_names: list[str] = array(STRING)

    request, position = decode(DeleteGroupsRequest, 2, frame, position)
    chunk = encode(request, 2)

One class serves every version: fields carry version ranges, a decoded message holds the default
where its version lacks a field, and an encoder leaves out what the version does not have.
"""

from __future__ import annotations

from typing import Any, TypeVar

from penstock_broker.wire.decoder import Decoder, compile_decoder
from penstock_broker.wire.encoder import Encoder, compile_encoder
from penstock_broker.wire.errors import DecodeError
from penstock_broker.wire.fields import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UINT16,
    UINT32,
    UUID,
    UUID_ZERO,
    Struct,
    array,
    field,
)
from penstock_broker.wire.primitives import Buffer

__all__ = [
    "BOOL",
    "BYTES",
    "FLOAT64",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "RECORDS",
    "STRING",
    "UINT16",
    "UINT32",
    "UUID",
    "UUID_ZERO",
    "DecodeError",
    "Struct",
    "array",
    "decode",
    "decoder",
    "encode",
    "encode_parts",
    "encoder",
    "field",
    "is_flexible",
]

S = TypeVar("S", bound=Struct)

_decoders: dict[tuple[type[Struct], int], Decoder] = {}
_encoders: dict[tuple[type[Struct], int], Encoder] = {}


def is_flexible(cls: type[Struct], version: int) -> bool:
    """Whether this version has compact lengths and tagged fields (KIP-482)."""
    return cls.flexible_from is not None and version >= cls.flexible_from


def _check_version(cls: type[Struct], version: int) -> None:
    if version not in cls.versions:
        raise ValueError(f"{cls.__name__} has no version {version}")


def decoder(cls: type[Struct], version: int) -> Decoder:
    """The compiled decoder; ValueError for a version that the class does not have."""
    found = _decoders.get((cls, version))
    if found is None:
        _check_version(cls, version)
        found = compile_decoder(cls, version, is_flexible(cls, version))
        _decoders[cls, version] = found
    return found


def encoder(cls: type[Struct], version: int) -> Encoder:
    """The compiled encoder; ValueError for a version that the class does not have."""
    found = _encoders.get((cls, version))
    if found is None:
        _check_version(cls, version)
        found = compile_encoder(cls, version, is_flexible(cls, version))
        _encoders[cls, version] = found
    return found


def decode(cls: type[S], version: int, buffer: Buffer, position: int = 0) -> tuple[S, int]:
    """Decode one message; give it and the position after it.

    Records fields are slices of `buffer` where it is a memoryview: valid as long as it is.
    Raises DecodeError, and nothing else, whatever the bytes are.
    """
    decode_message = _decoders.get((cls, version)) or decoder(cls, version)
    return decode_message(buffer, position)


def encode_parts(message: Struct, version: int) -> list[Any]:
    """Encode into chunks of bytes with the records objects of the message between them.

    Only `len()` is asked of a records object; one of length 0 leaves no part.
    """
    cls = type(message)
    return (_encoders.get((cls, version)) or encoder(cls, version))(message)


def encode(message: Struct, version: int) -> bytes:
    """Encode a message whose records, if any, are bytes-like."""
    cls = type(message)
    parts = (_encoders.get((cls, version)) or encoder(cls, version))(message)
    return parts[0] if len(parts) == 1 else b"".join(parts)
