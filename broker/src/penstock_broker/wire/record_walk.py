"""Whether the records of a batch are what its header says: whole, one behind the other, in order.

A CRC proves that a batch arrived as it was sent, not that it can be read: one record with a wrong
length stops every consumer of the partition permanently. So each record is walked through (length,
timestamp delta, offset delta, key, value, headers; the content of key and value is not checked),
which in Python costs 0.6 µs a record. Producers of many records tend to send them alike: a
*stretch* of records of one size, whose length fields are the same bytes, is compared with its
first record by slices with a step, for a hundredth of that.

This is another loop than ``record_parsing.py``, which reads what is stored: it takes nothing out of
a record, is stricter (offsets follow, headers are whole), says which record is wrong, and stretches
and shapes let it skip most of its work, which a parser cannot.

    record: length varint, attributes i8, timestamp delta varlong, offset delta varint,
            key length varint, key, value length varint, value, header count varint, headers

Varints are zigzag; -1 is the length of null.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock_broker.wire.errors import DecodeError

Payload = bytes | bytearray
"""What ``[]`` gives integers of, and slices with a step of, fast: not a memoryview."""

_STRETCH_MIN: Final = 8
"""Records from which on it pays to look for a stretch."""
_ONE_BYTE: Final = 64
_TWO_BYTES: Final = 8192
_DELTAS: Final = bytes(range(0, 128, 2))
_DELTAS_LOW: Final = bytes(0x80 | (2 * n & 0x7F) for n in range(_TWO_BYTES))
_DELTAS_HIGH: Final = bytes(2 * n >> 7 for n in range(_TWO_BYTES))
_HIGH_BYTES: Final = bytes(range(0x80, 0x100))


class BadRecordError(DecodeError):
    """``number`` is the first record, from 0, that is not what it should be."""

    def __init__(self, number: int, problem: str) -> None:
        super().__init__(f"record {number}: {problem}")
        self.number = number
        self.problem = problem


def check_records(data: Payload, position: int, end: int, count: int) -> None:
    """Check that ``data[position:end]`` is ``count`` whole records with offset deltas 0, 1, 2 …

    BadRecordError otherwise. Batches of one producer tend to be alike: what has been found out
    about the last few is remembered (:class:`Shape`) and compared, before the records are walked.
    """
    shape = _shapes.get((end - position, count))
    if shape is not None and shape.fits(data, position):
        return
    _walk(data, position, end, count)
    if shape is None and count <= _ONE_BYTE and (end - position) % count == 0:
        _remember(data, position, end, count)


class Shape:
    """What records of one size have in common that lie behind each other in a batch.

    ``columns`` are the bytes of all records at one place in them, from the first record on:
    lengths, offset deltas, the number of headers. Where these are the same, and the byte of the
    timestamp delta (``time_at``) goes without a second one, the records have the same structure.
    Of a single record, whose deltas are 0, all that comes before its key is compared.
    """

    __slots__ = ("_count", "_size", "_time_at", "columns")

    def __init__(self, size: int, count: int, time_at: int, columns: list[tuple[int, bytes]]):
        self._size = size
        self._count = count
        self._time_at = time_at
        self.columns = columns

    def fits(self, data: Payload, position: int) -> bool:
        """Whether records that begin at ``position``, as many and as long, are like these."""
        size, count = self._size, self._count
        if count == 1:
            for offset, column in self.columns:
                if not data.startswith(column, position + offset):
                    return False
            return True
        if not count:
            return False
        end = position + size * count
        for offset, column in self.columns:
            if data[position + offset : end : size] != column:
                return False
        return data[position + self._time_at : end : size].isascii()


_SHAPES_MAX: Final = 256
_shapes: dict[tuple[int, int], Shape | None] = {}
"""By size of all records and their number; None where such a batch has been seen once."""
_NO_SHAPE: Final = Shape(0, 0, 0, [])


def _remember(data: Payload, position: int, end: int, count: int) -> None:
    """Remember the shape of records that are whole, if they are alike, and not the first ones."""
    key = end - position, count
    if key not in _shapes:
        if len(_shapes) >= _SHAPES_MAX:
            _shapes.clear()
        _shapes[key] = None
        return
    _shapes[key] = shape_of(data, position, end, count) or _NO_SHAPE


def shape_of(data: Payload, position: int, end: int, count: int) -> Shape | None:
    """The shape of ``count`` records; None where they are not alike, have headers, or are more than
    64. :func:`check_records` has passed them."""
    size, rest = divmod(end - position, count)
    if rest or count > _ONE_BYTE:
        return None
    _, attributes_at = _varint(data, position)
    time_at = attributes_at + 1
    if data[time_at] >= 0x80:
        return None
    places = _lengths(data, position, attributes_at, time_at + 2)  # one byte of offset delta
    if places[-1] != size - 1:
        return None  # headers
    if count == 1:
        head = range(attributes_at - position, time_at + 2 - position)
        columns = _adjacent(data, position, sorted([*places, *head]))
    else:
        columns = [(at, bytes([data[position + at]]) * count) for at in places]
        columns.append((time_at + 1 - position, _DELTAS[:count]))
    shape = Shape(size, count, time_at - position, columns)
    return shape if shape.fits(data, position) else None


def _adjacent(data: Payload, position: int, places: list[int]) -> list[tuple[int, bytes]]:
    """The bytes at these places of one record, those side by side together."""
    found: list[tuple[int, bytes]] = []
    for at in places:
        byte = data[position + at : position + at + 1]
        if found and found[-1][0] + len(found[-1][1]) == at:
            found[-1] = (found[-1][0], found[-1][1] + byte)
        else:
            found.append((at, bytes(byte)))
    return found


def _walk(data: Payload, position: int, end: int, count: int) -> None:
    """Check that ``data[position:end]`` is ``count`` whole records with offset deltas 0, 1, 2 …

    BadRecordError otherwise. The loop is :func:`_check_record` for records as most are (no
    headers, lengths of one or two bytes), written out: a call costs as much as its content.
    """
    number, size_before, tries = 0, -1, 4
    while number < count:
        start = position
        try:
            size = data[position]
            position += 1
            if size >= 0x80:
                size += (data[position] << 7) - 0x80
                position += 1
            stop = position + (size >> 1)
            position += 1
            while data[position] >= 0x80:
                position += 1
            delta = data[position + 1]
            position += 2
            if delta >= 0x80:
                delta += (data[position] << 7) - 0x80
                position += 1
            key_at = position
            length = data[position]
            position += 1
            if length != 1:
                if length >= 0x80:
                    length += (data[position] << 7) - 0x80
                    position += 1
                position += length >> 1
                size |= length
            length = data[position]
            position += 1
            if length >= 0x80:
                length += (data[position] << 7) - 0x80
                position += 1
            position += length >> 1
            plain = not (
                (size | length) & 1
                or size | length | delta >= 0x4000
                or delta != number + number
                or data[position]
                or position + 1 != stop
                or stop > end
                or key_at - start > 8
            )
        except IndexError:
            plain = False
        if not plain:
            stop, key_at = _check_record(data, start, end, number)
        position = stop
        number += 1
        size = stop - start
        if size == size_before and tries:
            alike = _stretch(data, start, size, key_at - start, number, count, end)
            number += alike
            position += alike * size
            tries += 1 if alike else -1
        size_before = size
    if position != end:
        raise BadRecordError(count - 1, f"{end - position} bytes follow the last record")


def have_keys(data: Payload, position: int, count: int) -> Iterator[bool]:
    """Whether each of ``count`` records has a key; :func:`check_records` has passed them."""
    for _ in range(count):
        size, position = _varint(data, position)
        stop = position + (size >> 1)
        position += 1
        while data[position] >= 0x80:  # timestamp delta
            position += 1
        _, position = _varint(data, position + 1)
        yield not data[position] & 1  # the key's length: -1 is odd, all else is even
        position = stop


def _check_record(data: Payload, position: int, end: int, number: int) -> tuple[int, int]:
    """The end of a record, and where its key length begins."""
    try:
        size, position = _varint(data, position)
        stop = position + (size >> 1)
        if size & 1 or stop > end:
            raise BadRecordError(number, "its length does not fit")
        position += 1  # attributes: none are defined
        limit = position + 10
        while data[position] >= 0x80:  # timestamp delta
            position += 1
        if position >= limit:
            raise BadRecordError(number, "its timestamp is too long")
        delta, key_at = _varint(data, position + 1)
        if delta != 2 * number:
            raise BadRecordError(number, "its offset does not follow")
        position = _skip_bytes(data, key_at, number, "its key")
        position = _skip_bytes(data, position, number, "its value")
        position = _skip_headers(data, position, stop, number)
    except IndexError:
        raise BadRecordError(number, "it is cut short") from None
    if position != stop:
        raise BadRecordError(number, "its length is not that of its parts")
    return stop, key_at


def _stretch(  # noqa: PLR0917 (called a thousand times a millisecond)
    data: Payload, start: int, size: int, key_at: int, number: int, count: int, end: int
) -> int:
    """How many records after the one at ``start`` have the same structure.

    ``size`` is that of the record, ``key_at`` where its key length begins in it, ``number`` the
    one that comes next. 0 where nothing is gained: the records are then walked one by one.
    """
    if number == _ONE_BYTE:
        return 0  # the offset delta has just become a byte longer
    limit = _ONE_BYTE if number < _ONE_BYTE else _TWO_BYTES
    alike = min(count, limit, number + (end - start) // size - 1) - number
    if alike < _STRETCH_MIN:
        return 0
    first = start + size
    _, attributes_at = _varint(data, start)
    lengths = _lengths(data, start, attributes_at, start + key_at)
    if lengths[-1] != size - 1:
        return 0  # headers
    for offset in lengths:
        if alike < _STRETCH_MIN:
            return 0
        column = data[first + offset : first + offset + alike * size : size]
        alike -= len(column.lstrip(data[start + offset : start + offset + 1]))
    if alike < _STRETCH_MIN:
        return 0
    begin = attributes_at - start + 1
    columns = [
        data[first + offset : first + offset + alike * size : size]
        for offset in range(begin, key_at)
    ]
    return alike if _deltas_follow(columns, number, number + alike) else 0


def _lengths(data: Payload, start: int, attributes_at: int, position: int) -> list[int]:
    """Where, from ``start`` on, the lengths of a record and its parts are, the number of its
    headers included: what has to be the same bytes in records that are alike."""
    same = list(range(attributes_at - start))
    for _ in range(2):
        length, after = _varint(data, position)
        same += range(position - start, after - start)
        position = after + (length >> 1)  # of null, 1, nothing is left
    return [*same, position - start]


def _deltas_follow(columns: list[bytes | bytearray], number: int, upto: int) -> bool:
    """Whether the bytes between attributes and key, a column for each, are timestamp deltas of so
    many bytes, whatever they say, and the offset deltas ``number`` to ``upto``."""
    *times, last, offset = columns[: None if number < _ONE_BYTE else -1]
    if number < _ONE_BYTE:
        follows = offset == _DELTAS[number:upto]
    else:
        follows = offset == _DELTAS_LOW[number:upto] and columns[-1] == _DELTAS_HIGH[number:upto]
    return follows and last.isascii() and not any(t.translate(None, _HIGH_BYTES) for t in times)


def _skip_bytes(data: Payload, position: int, number: int, name: str) -> int:
    """The position after a length and as many bytes; -1 is null."""
    size, position = _varint(data, position)
    if not size & 1:
        return position + (size >> 1)
    if size != 1:
        raise BadRecordError(number, f"{name} has a negative length")
    return position


def _skip_headers(data: Payload, position: int, stop: int, number: int) -> int:
    """The position after the headers."""
    count, position = _varint(data, position)
    if count & 1:
        raise BadRecordError(number, "it has a negative number of headers")
    if count >> 1 > stop - position:
        raise BadRecordError(number, "it has more headers than bytes")
    for _ in range(count >> 1):
        if data[position] & 1:
            raise BadRecordError(number, "a header has no key")
        position = _skip_bytes(data, position, number, "a header")
        position = _skip_bytes(data, position, number, "a header")
        if position > stop:
            raise BadRecordError(number, "a header runs past its end")
    return position


def _varint(data: Payload, position: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits (zigzag is left as it is) and the position after it.

    IndexError at the end of the data, and for more than 32 bits.
    """
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 32:
                raise IndexError
            return value, position
        shift += 7
        if shift > 28:
            raise IndexError
