"""Variable-length integers and the skipping of tagged fields.

The compiled decoders read the first byte of a varint themselves and come here only when it
has a continuation bit.
"""

from __future__ import annotations

from typing import Final

from penstock_broker.wire.errors import DecodeError

Buffer = bytes | bytearray | memoryview

ELEMENTS_MAX: Final = 1 << 16
"""Array elements and tagged fields that one message may hold.

A two-byte element becomes an object of a hundred bytes and more, so bounding arrays by the bytes
that remain does not bound memory: a frame of 100 MB could ask for gigabytes. Nor time: so many take
some 60 ms to decode.
"""

SHORT_UVARINTS: Final = tuple(bytes([value]) for value in range(128))
"""The encodings of one byte, by value."""


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 32 bits; give (value, position after it)."""
    byte = buffer[position]
    if byte < 0x80:
        return byte, position + 1
    return read_uvarint_rest(buffer, position + 1, byte)


def read_uvarint_rest(
    buffer: Buffer, position: int, first: int, bits_max: int = 32
) -> tuple[int, int]:
    """Read on after a first byte with the continuation bit. The protocol's hold 32 bits, records'
    up to 64."""
    value = first & 0x7F
    shift = 7
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= bits_max:
            raise DecodeError(f"varint longer than {bits_max} bits")
    if value >> bits_max:
        raise DecodeError(f"varint beyond {bits_max} bits")
    return value, position


def write_uvarint(value: int) -> bytes:
    """Encode an unsigned varint (0 <= value < 2^32)."""
    if value < 0x80:
        return SHORT_UVARINTS[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def skip_tags(buffer: Buffer, position: int, count: int, budget: int) -> tuple[int, int]:
    """Skip the tagged fields of a struct; `count` is the first byte of their number.

    Gives (position after them, what is left of the element budget).
    """
    if count > 0x7F:
        count, position = read_uvarint_rest(buffer, position, count)
    if count > budget:
        raise DecodeError("too many tagged fields")
    for _ in range(count):
        _, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        position += size
        if position > len(buffer):
            raise DecodeError("tagged field runs past the end")
    return position, budget - count
