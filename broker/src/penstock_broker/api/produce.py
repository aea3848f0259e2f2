"""Produce (0), versions 3-11 (advertised 0-11): append record batches to partitions.

Behaviour:
* Each partition succeeds or fails on its own. A batch is checked (size, CRC, magic, counts,
  codec), given its offsets in place and appended.
* Inside, every record is walked through: lengths, offsets, keys where the topic is compacted,
  timestamps. Compressed records are opened for that, 64 MiB at most, and stored as sent. Records
  that are not as they should be are named (INVALID_RECORD, INVALID_TIMESTAMP, KIP-467), and
  nothing of their batch is stored; a wrong CRC is CORRUPT_MESSAGE.
* ``compression.type`` other than ``producer`` compresses anew what came otherwise; the size is
  then checked again (MESSAGE_TOO_LARGE). Large batches are opened in another thread, while their
  connection waits.
* acks=-1 is answered when the high watermark has passed the batch, or with REQUEST_TIMED_OUT;
  acks=1 after the append; acks=0 never, and an error there closes the connection, because nothing
  else would tell the client.
* Idempotent producers: a repeat of any of the last five batches of a partition is answered with
  its first offset and appended once (KIP-98).
* Records of a transaction need a partition that has been added to it (KIP-890): INVALID_TXN_STATE,
  from v11 on TRANSACTION_ABORTABLE. A fenced producer is told INVALID_PRODUCER_EPOCH here.
* The broker's own topics (``__consumer_offsets``) take nothing from clients:
  INVALID_TOPIC_EXCEPTION.

Version notes:
* v0-v2 are advertised and refused: see ApiVersions. Message formats 0 and 1 are INVALID_RECORD.
* v5: log start offset. v7: zstd (before: UNSUPPORTED_COMPRESSION_TYPE). v8: error message and
  record errors (KIP-467). v9: flexible.
* v10: the current leader beside NOT_LEADER_OR_FOLLOWER (KIP-951): it never changes here. v11: the
  same bytes; the client knows TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable

from penstock_broker.api.authorization import Operation, ResourceType, require
from penstock_broker.api.bounds import PRODUCE_PARTITIONS_MAX, require_at_most
from penstock_broker.api.context import (
    DEFERRED,
    UNANSWERED,
    CloseConnectionError,
    Encoded,
    Exchange,
    Reply,
    Services,
    Steps,
)
from penstock_broker.api.produce_quick import answer_one, read_one
from penstock_broker.api.produce_repeat import learn, may_repeat
from penstock_broker.api.produce_transactions import is_transactional, require_transaction, verify
from penstock_broker.api.registry import api
from penstock_broker.cluster.topic import INTERNAL_TOPICS
from penstock_broker.config import LogConfig
from penstock_broker.errors import ErrorCode, KafkaError, without_frames
from penstock_broker.log.append_result import AppendResult
from penstock_broker.log.record_rules import (
    LIGHT_OUTPUT_BYTES,
    RecordsRefusedError,
    is_heavy,
    look_inside,
)
from penstock_broker.replication.partition import Partition
from penstock_broker.wire.compression import DECOMPRESSED_BYTES_MAX, Codec, TooLargeError
from penstock_broker.wire.messages.produce import (
    API_KEY,
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from penstock_broker.wire.records import CODEC_MASK, RecordBatch

ACKS_ALL = -1
ZSTD_VERSION_MIN = 7

Waiting = dict[Partition, tuple[int, PartitionProduceResponse]]
"""Partitions whose high watermark has to reach an offset, and the answers that wait for it."""


def refuse(request: ProduceRequest, error: KafkaError, version: int) -> ProduceResponse:
    if request.acks == 0:
        raise CloseConnectionError(str(error))
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                partition_responses=[
                    PartitionProduceResponse(
                        index=data.index, error_code=error.code, base_offset=-1
                    )
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def quick(services: Services, exchange: Exchange, frame: memoryview, position: int) -> Reply | None:
    """One batch for one partition, without a message object (see ``produce_quick``)."""
    version = exchange.api_version
    request = read_one(frame, position, version)
    if request is None or not -1 <= request.acks <= 1 or is_transactional(request.records):
        return None
    try:
        require(services, exchange, Operation.WRITE, ResourceType.TOPIC, request.topic)
        partition = _partition(services, request.topic, request.partition)
        batch = _check(partition, request.records, request.acks, version)
        config = partition.log.config
        if is_heavy(batch, config):
            raise TooLargeError
        batch = look_inside(batch, config, services.clock.now_ms(), LIGHT_OUTPUT_BYTES)
        result = partition.append_checked(batch)
        partition.counters.produces += 1
    except TooLargeError:
        return None
    except KafkaError as error:
        _count_failure(services, request.topic, request.partition, len(request.records), error)
        if request.acks == 0:
            raise CloseConnectionError(f"acks=0 and error {error.code.name}") from error
        return _response_of_one(request.topic, _failed(request.partition, error))
    if request.acks == 0:
        if may_repeat(partition, version, 0):
            learn(services, exchange, frame, request, partition)
        return UNANSWERED
    if partition.must_wait(request.acks, result.last_offset):
        response = _succeeded(request.partition, result)
        waiting = {partition: (result.last_offset + 1, response)}
        whole = _response_of_one(request.topic, response)
        return _park(services, exchange, whole, waiting, request.timeout_ms)
    if may_repeat(partition, version, request.acks):
        learn(services, exchange, frame, request, partition)
    return Encoded(
        answer_one(
            request,
            version,
            result.base_offset,
            result.log_append_time_ms,
            result.log_start_offset,
        )
    )


def _response_of_one(topic: str, response: PartitionProduceResponse) -> ProduceResponse:
    return ProduceResponse(
        responses=[TopicProduceResponse(name=topic, partition_responses=[response])]
    )


@api(API_KEY, ProduceRequest, refuse=refuse, advertised=range(12), quick=quick)
def produce(services: Services, exchange: Exchange, request: ProduceRequest) -> Steps:
    if request.acks not in {-1, 0, 1}:
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
    count = sum(len(topic.partition_data) for topic in request.topic_data)
    require_at_most(count, PRODUCE_PARTITIONS_MAX, "partitions")
    require_transaction(services, exchange, request)
    response = ProduceResponse(responses=[])
    waiting: Waiting = {}
    for topic in request.topic_data:
        results = []
        for data in topic.partition_data:
            result = yield from _append(
                services, exchange, request, topic.name, data, waiting=waiting
            )
            if request.acks == 0 and result.error_code:
                raise CloseConnectionError(f"acks=0 and error {result.error_code}")
            results.append(result)
        response.responses.append(
            TopicProduceResponse(name=topic.name, partition_responses=results)
        )
    if request.acks == 0:
        return UNANSWERED
    if waiting:
        return _park(services, exchange, response, waiting, request.timeout_ms)
    return response


def _park(
    services: Services, exchange: Exchange, response: ProduceResponse, waiting: Waiting, ms: int
) -> Reply:
    """Wait for the replicas, but no longer than the client wants."""
    delayed = DelayedProduce(exchange, response, waiting)
    deadline = services.clock.monotonic() + max(0, ms) / 1000.0
    services.purgatory.park(delayed, [p.topic_partition for p in waiting], deadline)
    exchange.on_closed(lambda: services.purgatory.cancel(delayed))
    return DEFERRED


def _append(
    services: Services,
    exchange: Exchange,
    request: ProduceRequest,
    topic: str,
    data: PartitionProduceData,
    *,
    waiting: Waiting,
) -> Generator[Callable[[], None] | None, None, PartitionProduceResponse]:
    yield None
    acks, version = request.acks, exchange.api_version
    try:
        require(services, exchange, Operation.WRITE, ResourceType.TOPIC, topic)
        partition = _partition(services, topic, data.index)
        batch = _check(partition, data.records, acks, version)
        look = _Look(batch, partition.log.config, services.clock.now_ms())
        look.at_once()
        if look.is_heavy:
            yield look
        transactional_id = request.transactional_id
        result = partition.append_checked(
            look.batch(),
            is_verified=verify(services, transactional_id, partition, data.records, version),
        )
        partition.counters.produces += 1
    except KafkaError as error:
        _count_failure(services, topic, data.index, len(data.records or b""), error)
        return _failed(data.index, error)
    response = _succeeded(data.index, result)
    if partition.must_wait(acks, result.last_offset):
        waiting[partition] = (result.last_offset + 1, response)
    return response


def _count_failure(
    services: Services, topic: str, index: int, size: int, error: KafkaError
) -> None:
    partition = services.replicas.find(topic, index)
    if partition is not None:
        counters = partition.counters
        counters.produces += 1
        counters.failed_produces += 1
        if error.code is ErrorCode.MESSAGE_TOO_LARGE:
            counters.bytes_rejected += size


class _Look:
    """Looking inside a batch, here or in another thread."""

    def __init__(self, batch: RecordBatch, config: LogConfig, now_ms: int) -> None:
        self.is_heavy = is_heavy(batch, config)
        self._batch = batch
        self._config = config
        self._now_ms = now_ms
        self._error: KafkaError | None = None

    def at_once(self) -> None:
        """Look now, unless that is heavy, or turns out to be."""
        if not self.is_heavy:
            try:
                self._look(LIGHT_OUTPUT_BYTES)
            except TooLargeError:
                self.is_heavy = True

    def __call__(self) -> None:
        self._look(DECOMPRESSED_BYTES_MAX)

    def _look(self, bytes_max: int) -> None:
        try:
            self._batch = look_inside(self._batch, self._config, self._now_ms, bytes_max)
        except KafkaError as error:
            # Frames hold the opened records, and would be held by the error in a circle: a bomb
            # would stay until a collection of the oldest objects, which may be minutes away.
            self._error = without_frames(error)

    def batch(self) -> RecordBatch:
        """What is to be appended, after the look. KafkaError: what was wrong."""
        if self._error is not None:
            error, self._error = self._error, None
            try:
                raise error
            finally:
                del error
        return self._batch


def _check(
    partition: Partition, records: memoryview | None, acks: int, version: int
) -> RecordBatch:
    """The batch of a request, looked at from outside."""
    batch = partition.check(records, acks_all=acks == ACKS_ALL)
    if batch.attributes & CODEC_MASK == Codec.ZSTD and version < ZSTD_VERSION_MIN:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce requests with version {version} are not allowed to use ZStandard compression",
        )
    return batch


def _partition(services: Services, topic: str, index: int) -> Partition:
    """A partition that clients may write to."""
    if topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is the broker's own topic.")
    return services.replicas.partition(topic, index)


def _succeeded(index: int, result: AppendResult) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        base_offset=result.base_offset,
        log_append_time_ms=result.log_append_time_ms,
        log_start_offset=result.log_start_offset,
    )


def _failed(index: int, error: KafkaError) -> PartitionProduceResponse:
    response = PartitionProduceResponse(
        index=index, error_code=error.code, base_offset=-1, error_message=str(error)
    )
    if isinstance(error, RecordsRefusedError):
        response.record_errors = [
            BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=problem)
            for number, problem in error.records
        ]
    return response


class DelayedProduce:
    """A request that waits until the replicas, or the disk, have what it appended."""

    def __init__(
        self,
        exchange: Exchange,
        response: ProduceResponse,
        waiting: Waiting,
    ) -> None:
        self._exchange = exchange
        self._response = response
        self._waiting = waiting

    def advanced(self, key: Hashable, amount: int) -> bool:
        for partition, (required, _) in list(self._waiting.items()):
            if partition.high_watermark >= required:
                del self._waiting[partition]
        return not self._waiting

    def still_waits(self) -> bool:
        return False

    def complete(self) -> None:
        self.advanced(None, 0)
        for partition, (_, response) in self._waiting.items():
            response.error_code = (
                ErrorCode.REQUEST_TIMED_OUT
                if partition.is_online
                else ErrorCode.KAFKA_STORAGE_ERROR
            )
            response.base_offset = -1
        self._exchange.respond(self._response)
