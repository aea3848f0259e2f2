"""What is written, byte for byte as Apache Kafka 4.3.1 wrote it in the same transactions."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from penstock_broker.log.aborted_transactions import AbortedTransactions
from penstock_broker.log.index_file import IndexDamagedError
from penstock_broker.log.markers import Marker, build_marker, read_marker
from penstock_broker.log.open_transactions import OpenTransactions
from penstock_broker.testing import MemFiles
from penstock_broker.transactions.states import BY_TITLE, TransactionState
from penstock_broker.transactions.transaction import Transaction
from penstock_broker.transactions.transaction_records import (
    TransactionKey,
    TransactionValue,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from penstock_broker.wire.errors import DecodeError
from penstock_broker.wire.records import LENGTH_END, PLACE, RecordBatch
from penstock_broker.wire.schema import decode, encode

# Kafka's TransactionState: the byte that is stored, and the word that clients filter by.
KAFKAS_STATES = {
    "Empty": 0,
    "Ongoing": 1,
    "PrepareCommit": 2,
    "PrepareAbort": 3,
    "CompleteCommit": 4,
    "CompleteAbort": 5,
    "Dead": 6,
    "PrepareEpochFence": 7,
}


KEY = "00000009636170747572652d78"
VALUES = {
    TransactionState.EMPTY: (
        "000100000000000007f100000000ea600000000001a1fca57d5dffffffffffffffff01000800000000000007f1"
    ),
    TransactionState.ONGOING: (
        "000100000000000007f100000000ea6001020b6361702d396430353134020000000000"
        "000001a1fca57daa000001a1fca57daa01000800000000000007f1"
    ),
    TransactionState.PREPARE_ABORT: (
        "000100000000000007f100000000ea6003020b6361702d396430353134020000000000"
        "000001a1fca57db1000001a1fca57daa01000800000000000007f1"
    ),
    TransactionState.COMPLETE_ABORT: (
        "000100000000000007f100000000ea600501000001a1fca57db3000001a1fca57daa01000800000000000007f1"
    ),
    TransactionState.COMPLETE_COMMIT: (
        "000100000000000007f100000000ea600401000001a1fca57dcf000001a1fca57dcc01000800000000000007f1"
    ),
}
ABORT_MARKER = (
    "000000000000000200000042000000000233df4f1b003000000000000001a1fc"
    "a57dbc000001a1fca57dbc00000000000007f20000ffffffff00000001200000"
    "0008000000000c00000000000400"
)
TXNINDEX = (
    "000000000000000007f2000000000000000000000000000000020000000000000001"
    "000000000000000007f1000000000000000100000000000000030000000000000004"
)


FIXED = struct.pack(">qhib", 7, 3, 9, 1), struct.pack(">qq", 11, 12)
"""A value up to its partitions, and from there on."""


@pytest.mark.parametrize(
    ("version", "nothing", "tagged", "others"),
    [
        (0, b"\xff\xff\xff\xff", b"", (-1, -1, 0)),
        (1, b"\0", b"\0", (-1, -1, 0)),
        (1, b"\0", struct.pack(">BBBqBBqBBh", 3, 0, 8, 4, 1, 8, 5, 2, 2, 6), (4, 5, 6)),
    ],
    ids=["version 0", "version 1", "all tagged fields"],
)
def test_values_have_kafkas_fields(
    version: int, nothing: bytes, tagged: bytes, others: tuple[int, int, int]
) -> None:
    """``TransactionLogValue.json``, field by field."""
    previous, following, client = others
    value = TransactionValue(
        producer_id=7, previous_producer_id=previous, next_producer_id=following, producer_epoch=3,
        timeout_ms=9, status=1, partitions=None, last_update_ms=11, start_ms=12,
        client_version=client,
    )  # fmt: skip
    data = FIXED[0] + nothing + FIXED[1] + tagged
    assert decode(TransactionValue, version, data, 0) == (value, len(data))
    assert encode(value, version) == data


def test_values_have_kafkas_defaults() -> None:
    value = TransactionValue(
        producer_id=7, producer_epoch=3, timeout_ms=9, status=1, partitions=None, last_update_ms=11,
        start_ms=12,
    )  # fmt: skip
    assert (value.previous_producer_id, value.next_producer_id, value.client_version) == (-1, -1, 0)


def test_an_unknown_state_is_an_error_of_the_record() -> None:
    data = bytearray(bytes.fromhex(VALUES[TransactionState.ONGOING]))
    assert data[16] == TransactionState.ONGOING
    data[16] = 99
    with pytest.raises(DecodeError, match="99"):
        decode_value("x", bytes(data))


def test_there_is_one_version_of_keys() -> None:
    assert list(TransactionKey.versions) == [0]


def test_states_have_kafkas_numbers_and_names() -> None:
    assert {state.title: int(state) for state in TransactionState} == KAFKAS_STATES
    assert {title: int(state) for title, state in BY_TITLE.items()} == KAFKAS_STATES


@pytest.mark.parametrize("state", VALUES)
def test_records_of_the_internal_topic(state: TransactionState) -> None:
    data = bytes.fromhex(VALUES[state])
    transaction = decode_value("capture-x", data)
    assert transaction.state is state
    assert (transaction.producer_id, transaction.producer_epoch) == (2033, 0)
    assert transaction.timeout_ms == 60_000
    has_partition = state in {TransactionState.ONGOING, TransactionState.PREPARE_ABORT}
    assert transaction.partitions == ({("cap-9d0514", 0)} if has_partition else set())
    assert encode_value(transaction) == data


def test_keys_of_the_internal_topic() -> None:
    assert encode_key("capture-x").hex() == KEY
    assert decode_key(bytes.fromhex(KEY)) == "capture-x"
    assert decode_key(b"\0\7future") is None
    long = "x" * 4_096
    assert decode_key(encode_key(long)) == long


def test_partitions_are_written_by_topic_and_in_order() -> None:
    """Equal transactions have equal records, in whichever order their partitions came."""
    names, indexes = ["a", "b", "c"], list(range(9))
    partitions = frozenset((name, index) for index in indexes for name in names)
    state = TransactionState.ONGOING
    data = encode_value(Transaction("x", 7, 1, 0, state=state, partitions=partitions))
    value, _ = decode(TransactionValue, 1, data, 2)
    found = [(topic.topic, topic.partition_ids) for topic in value.partitions or ()]
    assert found == [(name, indexes) for name in names]


def test_values_of_version_0_are_read() -> None:
    """As Kafka to 3.9 writes them."""
    topic = struct.pack(">h4si2i", 4, b"topi", 2, 5, 6)
    value = struct.pack(">hqhibi", 0, 77, 3, 60_000, 2, 1) + topic + struct.pack(">qq", 20, 10)
    assert decode_value("x", value) == Transaction(
        "x",
        77,
        60_000,
        3,
        state=TransactionState.PREPARE_COMMIT,
        partitions=frozenset({("topi", 5), ("topi", 6)}),
        started_ms=10,
        updated_ms=20,
    )
    empty = struct.pack(">hqhibiqq", 0, 77, 3, 60_000, 0, -1, 20, -1)
    assert decode_value("x", empty).partitions == frozenset()


@pytest.mark.parametrize("data", [b"", b"\0\2" + bytes(60), b"\0\1" + bytes(5)])
def test_values_that_cannot_be_read(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_value("x", data)


def test_markers() -> None:
    """Pitfall 30: with a key of version and type, and a value of six bytes."""
    data = bytes.fromhex(ABORT_MARKER)
    batch = RecordBatch(memoryview(data))
    assert batch.crc_is_valid()
    assert read_marker(batch) == Marker(is_commit=False, coordinator_epoch=4)
    ours = build_marker(0x7F2, 0, Marker(is_commit=False, coordinator_epoch=4), 0x1A1FCA57DBC)
    PLACE.pack_into(ours, 0, 2, len(ours) - LENGTH_END, 0)
    assert ours == data


def test_the_index_of_aborted_transactions() -> None:
    """Two that overlap: the last stable offset after the first marker is below it."""
    files = MemFiles()
    directory = Path("/d")
    files.make_directory(directory)
    path = directory / f"{0:020d}.txnindex"
    index = AbortedTransactions(files, path)
    transactions = OpenTransactions()
    transactions.begin(0x7F2, 0)
    transactions.begin(0x7F1, 1)
    for producer_id, offset in ((0x7F2, 2), (0x7F1, 3)):
        entry = transactions.end(producer_id, offset, is_commit=False)
        assert entry is not None
        index.add(entry)
    index.save()
    assert files.get(path).hex() == TXNINDEX
    index.attach()
    assert [entry[0] for entry in index.entries()] == [0x7F2, 0x7F1]


@pytest.mark.parametrize(
    "damage",
    [
        TXNINDEX[:-2],
        "0001" + TXNINDEX[4:],
        TXNINDEX[68:] + TXNINDEX[:68],
        TXNINDEX[:20] + "0000000000000009" + TXNINDEX[36:],
        "00" * 34,
    ],
)
def test_an_index_of_aborted_transactions_that_cannot_be(damage: str) -> None:
    files = MemFiles()
    files.make_directory(Path("/d"))
    path = Path(f"/d/{0:020d}.txnindex")
    files.put(path, bytes.fromhex(damage))
    index = AbortedTransactions(files, path)
    with pytest.raises(IndexDamagedError):
        index.load()
