"""What the transaction coordinator refuses, and what it does where it cannot write."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from txn_harness import DATA, ID_EXPIRATION_MS, TIMEOUT_MS, TOPIC, Harness, refused, state

from penstock_broker.cluster.topic import TRANSACTIONS_TOPIC
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.markers import Marker
from penstock_broker.transactions.coordinator import TransactionLimits
from penstock_broker.transactions.states import TransactionState
from penstock_broker.transactions.transaction_records import encode_value
from penstock_broker.wire.batch_builder import NewRecord, build_batch

Producer = tuple[int, int]
Request = Callable[[Harness, Producer], object]

REQUESTS: dict[str, Request] = {
    "InitProducerId": lambda harness, producer: harness.init(),
    "AddPartitionsToTxn": lambda harness, producer: harness.add(producer, 1),
    "EndTxn": lambda harness, producer: harness.end(producer, commit=True),
    "verification": lambda harness, producer: harness.transactions.verify(
        "x", *producer, [(TOPIC, 0)]
    ),
    "DescribeTransactions": lambda harness, producer: harness.transactions.describe("x"),
}


def code_of(request: Callable[[], object]) -> ErrorCode:
    try:
        request()
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def fail_state_log(harness: Harness) -> None:
    harness.partition(harness.topic.partition_of("x"), TRANSACTIONS_TOPIC).log.fail("for the test")


def test_an_empty_id_is_no_id() -> None:
    harness = Harness()
    assert code_of(lambda: harness.init("")) is ErrorCode.INVALID_REQUEST
    for request in (
        lambda: harness.add((1, 0), 0, transactional_id=""),
        lambda: harness.end((1, 0), commit=True, transactional_id=""),
        lambda: harness.transactions.describe(""),
    ):
        assert code_of(request) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("is_prepared", [False, True])
def test_an_id_whose_partition_is_offline_has_no_coordinator(
    name: str, *, is_prepared: bool
) -> None:
    """Whatever is in memory of it: another process may know better."""
    harness = Harness()
    producer = harness.init()
    harness.add(producer, 0)
    if is_prepared:
        harness.files.fail("write", errno.ENOSPC, path_part=f"{TOPIC}-0")
        harness.end(producer, commit=True)
        assert state(harness) is TransactionState.PREPARE_COMMIT
    fail_state_log(harness)
    assert code_of(lambda: REQUESTS[name](harness, producer)) is ErrorCode.NOT_COORDINATOR


def test_a_coordinator_is_found_where_there_is_one() -> None:
    """FindCoordinator makes the internal topic, so that the next request finds it."""
    harness = Harness()
    assert harness.topic.partition_count() == 0
    harness.transactions.prepare("x")
    assert harness.topic.partition_count() == 2
    fail_state_log(harness)
    with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
        harness.transactions.prepare("x")


def test_a_topic_that_cannot_be_made_costs_no_producer_id() -> None:
    harness, other = Harness(), Harness()
    harness.files.fail("open", errno.ENOSPC, path_part=TRANSACTIONS_TOPIC)
    assert code_of(harness.init) is ErrorCode.KAFKA_STORAGE_ERROR
    assert harness.init() == other.init()


def test_the_length_of_an_id_has_a_limit() -> None:
    harness = Harness(settings={})
    harness.init("x" * 4_096)
    with pytest.raises(KafkaError, match=r"at most 4096 characters\.") as error:
        harness.init("x" * 4_097)
    assert error.value.code is ErrorCode.INVALID_REQUEST


def test_the_number_of_ids_has_a_limit() -> None:
    """Any client may invent ids; known ones are served, whatever their number."""
    harness = Harness(limits=TransactionLimits(ids_max=2))
    producer = harness.init("x")
    harness.init("y")
    with pytest.raises(KafkaError, match=r"2 transactional ids \(transaction\.coor") as error:
        harness.init("z")
    assert error.value.code is ErrorCode.POLICY_VIOLATION
    assert harness.init("x") == (producer[0], producer[1] + 1)
    harness.clock.advance(ID_EXPIRATION_MS)
    harness.transactions.expire_ids()
    harness.init("z")


def test_limits_are_those_of_kafka_where_nothing_else_is_said() -> None:
    assert TransactionLimits() == TransactionLimits(
        timeout_max_ms=15 * 60_000,
        id_expiration_ms=7 * 24 * 3_600_000,
        verifies_partitions=True,
        ids_max=50_000,
    )


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.CORRUPT_MESSAGE, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_what_clients_are_answered_when_the_internal_topic_cannot_be_written(
    code: ErrorCode, expected: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pitfall 31: as Kafka maps it, nothing that a client may try again is an unknown error."""
    harness = Harness()
    producer = harness.init()
    log = harness.partition(harness.topic.partition_of("x"), TRANSACTIONS_TOPIC)

    def refuse(*_: object, **__: object) -> None:
        raise KafkaError(code, "why")

    monkeypatch.setattr(type(log), "append", refuse)
    with pytest.raises(KafkaError, match="why") as error:
        harness.add(producer, 0)
    assert error.value.code is expected
    monkeypatch.undo()
    assert state(harness) is TransactionState.EMPTY


def test_a_topic_that_asks_for_more_replicas_takes_no_state() -> None:
    """acks=all: min.insync.replicas counts, so no client relies on what one broker alone has."""
    harness = Harness()
    producer = harness.init()
    harness.replicas.set_configs(TRANSACTIONS_TOPIC, {"min.insync.replicas": "2"})
    with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
        harness.add(producer, 0)


def test_state_is_on_the_disk_before_it_counts_where_the_topic_asks_for_that() -> None:
    harness = Harness()
    producer = harness.init()
    harness.replicas.set_configs(TRANSACTIONS_TOPIC, {"flush.messages": "1"})
    harness.logs.group_flush.submit = lambda job, done: None  # syncs later, if ever
    log = harness.partition(harness.topic.partition_of("x"), TRANSACTIONS_TOPIC).log
    syncs = harness.files.syncs
    harness.add(producer, 0)
    assert log.recovery_point == log.high_watermark == log.log_end_offset
    assert harness.files.syncs > syncs
    harness.replicas.set_configs(TRANSACTIONS_TOPIC, {"flush.messages": "9"})
    syncs = harness.files.syncs
    harness.add(producer, 1)
    assert harness.files.syncs == syncs, "nor is it synced where no setting asks for it"


# -- what is in the internal topic --------------------------------------------------------------


def put_state(harness: Harness, status: int) -> None:
    """The last record of ``x`` gets another status, in a log that was closed."""
    place = DATA / f"{TRANSACTIONS_TOPIC}-{harness.topic.partition_of('x')}" / f"{0:020d}.log"
    value = encode_value(harness.transactions.describe("x"))
    data = bytearray(harness.files.get(place))
    at = data.rindex(value)
    data[at + 16] = status
    harness.replicas.close()
    harness.files.put(place, bytes(data))


def test_an_id_that_was_stored_as_dead_is_unknown() -> None:
    """Kafka writes such a value while it removes an id."""
    harness = Harness()
    harness.init()
    put_state(harness, TransactionState.DEAD)
    harness = harness.after_a_kill()
    assert code_of(lambda: state(harness)) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert harness.init()[1] == 0


def test_an_id_in_a_state_that_no_version_has_does_not_start_over() -> None:
    harness = Harness()
    harness.init()
    put_state(harness, 9)
    harness = harness.after_a_kill()
    assert code_of(harness.init) is ErrorCode.NOT_COORDINATOR


def test_a_marker_among_the_states_is_nobodys_state() -> None:
    harness = Harness()
    harness.init()
    log = harness.partition(harness.topic.partition_of("x"), TRANSACTIONS_TOPIC)
    marker = Marker(is_commit=True, coordinator_epoch=0)
    log.append_marker(7, 0, marker, harness.clock.now_ms())
    assert harness.after_a_kill().init()[1] == 1


def test_a_record_without_a_key_is_no_state_to_continue_with() -> None:
    """A topic that was made by hand, without cleanup.policy=compact, may have one."""
    harness = Harness()
    harness.init()
    harness.replicas.set_configs(TRANSACTIONS_TOPIC, {"cleanup.policy": "delete"})
    log = harness.partition(harness.topic.partition_of("x"), TRANSACTIONS_TOPIC)
    log.append(memoryview(build_batch([NewRecord(None, b"?", harness.clock.now_ms())])))
    with refused(ErrorCode.NOT_COORDINATOR):
        harness.after_a_kill().init()


# -- time -----------------------------------------------------------------------------------------


def test_one_id_that_cannot_be_removed_keeps_no_other(caplog: pytest.LogCaptureFixture) -> None:
    harness = Harness()
    harness.add(harness.init("open"), 0, transactional_id="open")
    names = [f"id-{number}" for number in range(6)]
    for name in names:
        harness.init(name)
    harness.clock.advance(ID_EXPIRATION_MS - 1)
    harness.init("young")
    harness.clock.advance(1)
    harness.files.fail("write", errno.ENOSPC, path_part=TRANSACTIONS_TOPIC)
    harness.transactions.expire_ids()
    (stays,) = (name for name in names if code_of(lambda name=name: state(harness, name)) == 0)
    assert f"transactional id {stays} stays: " in caplog.text
    assert state(harness, "open") is TransactionState.ONGOING
    assert state(harness, "young") is TransactionState.EMPTY
    harness.transactions.expire_ids()
    assert code_of(lambda: state(harness, stays)) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_one_transaction_that_cannot_be_aborted_keeps_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "penstock_broker")
    harness = Harness(settings={})
    harness.init("idle")
    producers = {name: harness.init(name) for name in ("x", "y", "z")}
    for name, producer in producers.items():
        harness.add(producer, 0, transactional_id=name)
    harness.clock.advance(TIMEOUT_MS + 1)
    harness.files.fail("write", errno.ENOSPC, path_part=TRANSACTIONS_TOPIC)
    harness.transactions.abort_expired()
    states = [state(harness, name) for name in producers]
    assert states == [TransactionState.ONGOING, *[TransactionState.COMPLETE_ABORT] * 2]
    assert "y: aborting a transaction that has been open for 60001 ms" in caplog.text
    assert "it is not aborted yet: " in caplog.text
    ended = harness.metrics.transactions_ended
    assert (ended.labels("timeout").value, ended.labels("abort").value) == (2, 0)
    harness.end(producers["x"], commit=False)
    assert (ended.labels("timeout").value, ended.labels("abort").value) == (2, 1)
