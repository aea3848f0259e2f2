"""The five codecs of record batches, with a bound on what decompression may produce.

Snappy comes in two forms: bare (librdkafka) and in snappy-java's blocks (`\\x82SNAPPY`, Java); both
are read, the second is written, and every client reads it. LZ4 is its frame format with
independent blocks: Java's reader refuses linked ones.
"""

from __future__ import annotations

import struct
import zlib
from enum import IntEnum
from typing import Any, Final

import cramjam

from penstock_broker.wire.errors import DecodeError
from penstock_broker.wire.primitives import Buffer

HEAD_BYTES: Final = 64 * 1024
DECOMPRESSED_BYTES_MAX: Final = 64 * 1024 * 1024
"""How large one batch may become: a batch of 1 MB can otherwise ask for gigabytes."""

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK: Final = 32 * 1024
_LZ4_HEADER: Final = bytes.fromhex("04224d18604082")  # version 1, independent blocks of 64 KiB
_LZ4_BLOCK: Final = 64 * 1024
_LZ4_STORED: Final = 0x80000000
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS


class TooLargeError(DecodeError):
    """The output would be larger than allowed."""


class Codec(IntEnum):
    """The low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


ZSTD_LEVEL = 3
"""Kafka's; cramjam says that its own is 11."""


def compress(codec: Codec, data: bytes, level: int | None = None) -> bytes:
    """Compress the records of a batch as a producer does.

    `level` is gzip's (-1, 1 to 9) or zstd's (to 22) effort, None the library's own (KIP-390);
    snappy has none, and for lz4 the library has only the fast one.
    """
    if codec is Codec.GZIP:
        effort = -1 if level is None else level
        compressor = zlib.compressobj(effort, zlib.DEFLATED, _GZIP_WINDOW)
        return compressor.compress(data) + compressor.flush()
    if codec is Codec.SNAPPY:
        out = [_XERIAL_HEADER]
        for start in range(0, len(data), _XERIAL_BLOCK):
            block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK]))
            out += (struct.pack(">i", len(block)), block)
        return b"".join(out)
    if codec is Codec.LZ4:
        return _compress_lz4(data)
    if codec is Codec.ZSTD:
        return bytes(cramjam.zstd.compress(data, level=ZSTD_LEVEL if level is None else level))
    return data


def _compress_lz4(data: bytes) -> bytes:
    out = [_LZ4_HEADER]
    for start in range(0, len(data), _LZ4_BLOCK):
        plain = data[start : start + _LZ4_BLOCK]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            out += (struct.pack("<I", len(block)), block)
        else:
            out += (struct.pack("<I", len(plain) | _LZ4_STORED), plain)
    out.append(b"\0\0\0\0")
    return b"".join(out)


def decompress(codec: Codec, data: Buffer, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """Decompress; DecodeError for broken data and for more than `bytes_max` of output."""
    if codec is Codec.GZIP:
        return _decompress_gzip(data, bytes_max)
    if codec is Codec.SNAPPY:
        return _decompress_snappy(bytes(data), bytes_max)
    if codec is Codec.LZ4:
        return _decompress_growing(cramjam.lz4, data, bytes_max)
    if codec is Codec.ZSTD:
        return _decompress_growing(cramjam.zstd, data, bytes_max)
    return bytes(data)


def first_bytes(codec: Codec, data: Buffer) -> bytes:
    """What the output begins with, as far as it is cheap to know: a look before the leap."""
    try:
        if codec is Codec.GZIP:
            return zlib.decompressobj(_GZIP_WINDOW).decompress(data, HEAD_BYTES)
        if codec in {Codec.LZ4, Codec.ZSTD}:
            out = bytearray(HEAD_BYTES)
            try:
                (cramjam.lz4 if codec is Codec.LZ4 else cramjam.zstd).decompress_into(data, out)
            except cramjam.DecompressionError as cause:
                if "whole buffer" not in str(cause):
                    return b""
            return bytes(out)
    except zlib.error:
        pass
    return b""


def _too_large(bytes_max: int) -> TooLargeError:
    return TooLargeError(f"batch decompresses to more than {bytes_max} bytes")


def _decompress_gzip(data: Buffer, bytes_max: int) -> bytes:
    stream = zlib.decompressobj(_GZIP_WINDOW)
    try:
        out = stream.decompress(data, bytes_max + 1)
    except zlib.error as cause:
        raise DecodeError(f"gzip: {cause}") from cause
    if len(out) > bytes_max:
        raise _too_large(bytes_max)
    if not stream.eof:
        raise DecodeError("gzip: truncated")
    if stream.unused_data:
        raise DecodeError("gzip: bytes follow the end")
    return out


def _decompress_snappy(data: bytes, bytes_max: int) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        return _decompress_block(data, bytes_max, bytes_max)
    out = []
    left = bytes_max
    position = len(_XERIAL_HEADER)
    while position < len(data):
        if position + 4 > len(data):
            raise DecodeError("snappy: truncated block size")
        (size,) = struct.unpack_from(">i", data, position)
        position += 4
        if not 0 <= size <= len(data) - position:
            raise DecodeError("snappy: block runs past the end")
        block = _decompress_block(data[position : position + size], left, bytes_max)
        left -= len(block)
        out.append(block)
        position += size
    return b"".join(out)


def _decompress_block(data: bytes, left: int, bytes_max: int) -> bytes:
    """One bare snappy block; its announced size is believed only up to snappy's best ratio."""
    try:
        size = cramjam.snappy.decompress_raw_len(data)
        if size > left:
            raise _too_large(bytes_max)
        if size > 64 * len(data):
            raise DecodeError("snappy: announced size cannot be true")
        return bytes(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as cause:
        raise DecodeError(f"snappy: {cause}") from cause


def _decompress_growing(codec: Any, data: Buffer, bytes_max: int) -> bytes:
    """Decompress into a buffer of fixed size, a larger one each time it did not suffice."""
    size = min(bytes_max, max(64 * 1024, 4 * len(data)))
    while True:
        out = bytearray(size)
        try:
            return bytes(memoryview(out)[: codec.decompress_into(data, out)])
        except cramjam.DecompressionError as cause:
            if "whole buffer" not in str(cause):
                raise DecodeError(f"{codec.__name__}: {cause}") from cause
            if size >= bytes_max:
                raise _too_large(bytes_max) from cause
        size = min(bytes_max, 8 * size)
