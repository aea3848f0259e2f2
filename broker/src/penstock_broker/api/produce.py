"""Produce (0), versions 3-11 (advertised 0-11): append record batches to partitions.

Behaviour:
* Each partition succeeds or fails on its own. A batch is checked (size, CRC, magic, counts,
  codec), given its offsets in place and appended.
* Inside, every record is walked through: lengths, offsets, keys where the topic is compacted,
  timestamps. Compressed records are opened for that, 64 MiB at most, and stored as sent. Records
  that are not as they should be are named (INVALID_RECORD, INVALID_TIMESTAMP, KIP-467), and
  nothing of their batch is stored; a wrong CRC is CORRUPT_MESSAGE.
* ``compression.type`` other than ``producer`` recompresses what came otherwise; the size is
  then checked again (MESSAGE_TOO_LARGE). Large batches are opened in another thread, while their
  connection waits.
* acks=-1 is answered when the high watermark has passed the batch, or with REQUEST_TIMED_OUT;
  acks=1 after the append; acks=0 never, and an error there closes the connection, because nothing
  else would tell the client.
* Idempotent producers: a repeat of any of the last five batches of a partition is answered with
  its first offset and appended once (KIP-98).
* Records of a transaction need a partition that has been added to it (KIP-890): INVALID_TXN_STATE,
  from v11 on TRANSACTION_ABORTABLE. A fenced producer gets INVALID_PRODUCER_EPOCH here.
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

from collections.abc import Hashable, Sequence

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
from penstock_broker.api.produce_frame import OneBatch, answer_one, read_one
from penstock_broker.api.produce_transactions import require_transaction, verify
from penstock_broker.api.registry import api
from penstock_broker.cluster.topic import INTERNAL_TOPICS
from penstock_broker.config import LogConfig
from penstock_broker.errors import ErrorCode, KafkaError, without_frames
from penstock_broker.log.append_result import AppendResult
from penstock_broker.log.record_rules import (
    LIGHT_OUTPUT_BYTES,
    RecordsRefusedError,
    look_inside,
)
from penstock_broker.replication.partition import Partition
from penstock_broker.wire.compression import Codec, TooLargeError
from penstock_broker.wire.messages.produce import (
    API_KEY,
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from penstock_broker.wire.records import CODEC_MASK, RecordBatch, validate_batch

ACKS_ALL = -1
ZSTD_VERSION_MIN = 7

_Entry = tuple[str, int, memoryview | None]
"""Topic, partition and records of one batch."""
Outcome = tuple[Partition | None, AppendResult]
"""Where a batch was put, or ``error``; None where there is no such partition to write to."""
Waiting = dict[Partition, tuple[int, PartitionProduceResponse]]
"""Partitions whose high watermark has to reach an offset, and the answers that wait for it."""


def refuse(request: ProduceRequest | OneBatch, error: KafkaError, version: int) -> ProduceResponse:
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


@api(API_KEY, ProduceRequest, refuse=refuse, advertised=range(12), fast_decoder=read_one)
def produce(services: Services, exchange: Exchange, request: ProduceRequest | OneBatch) -> Steps:
    acks, version = request.acks, exchange.api_version
    if acks not in {-1, 0, 1}:
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
    outcomes: list[Outcome] = []
    for topic, index, records in _entries(services, exchange, request):
        if outcomes:
            yield None
        partition = None
        try:
            partition = writable(services, exchange, topic, index)
            if not records:
                raise KafkaError(
                    ErrorCode.INVALID_RECORD, "There must be at least one record batch."
                )
            now_ms = services.clock.now_ms()
            try:
                batch = examine(partition, records, 0, len(records), acks, version, now_ms)
            except TooLargeError:
                look = _Look(RecordBatch(records), partition.log.config, now_ms)
                yield look
                batch = look.batch()
            is_verified = batch.is_transactional and verify(
                services, request.transactional_id, partition, records, version
            )
            services.staged.add(partition)
            result = partition.stage(batch, is_verified=is_verified)
        except KafkaError as error:
            result = failed(error)
        outcomes.append((partition, result))
    return Produced(services, exchange, request, outcomes)


def writable(services: Services, exchange: Exchange, topic: str, index: int) -> Partition:
    """The partition that a client may write to. KafkaError: TOPIC_AUTHORIZATION_FAILED,
    INVALID_TOPIC_EXCEPTION for the broker's own, and as ``ReplicaManager.partition``."""
    require(services, exchange, Operation.WRITE, ResourceType.TOPIC, topic)
    if topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is the broker's own topic.")
    return services.replicas.partition(topic, index)


def examine(  # noqa: PLR0917 (called for every batch)
    partition: Partition,
    buffer: memoryview,
    begin: int,
    end: int,
    acks: int,
    version: int,
    now_ms: int,
) -> RecordBatch:
    """What is to be staged of the batch from ``begin`` to ``end``: it is as it should be.

    KafkaError: as ``validate_batch``, :meth:`Partition.require_replicas` and ``look_inside``, and
    UNSUPPORTED_COMPRESSION_TYPE.
    :class:`TooLargeError` where that takes too long for the event loop.
    """
    config = partition.log.config
    if acks == ACKS_ALL:
        partition.require_replicas()
    batch = validate_batch(buffer, begin, end, max_message_bytes=config.max_message_bytes)
    if version < ZSTD_VERSION_MIN and batch.attributes & CODEC_MASK == Codec.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce requests with version {version} are not allowed to use ZStandard compression",
        )
    return look_inside(batch, config, now_ms, LIGHT_OUTPUT_BYTES)


def failed(error: KafkaError) -> AppendResult:
    """The result of a batch that was not staged."""
    return AppendResult(-1, -1, -1, -1, error=without_frames(error))


def _entries(
    services: Services, exchange: Exchange, request: ProduceRequest | OneBatch
) -> Sequence[_Entry]:
    """The batches of a request. KafkaError where it is to be refused whole."""
    if isinstance(request, OneBatch):
        return ((request.topic, request.partition, request.records),)
    entries = [
        (topic.name, data.index, data.records)
        for topic in request.topic_data
        for data in topic.partition_data
    ]
    require_at_most(len(entries), PRODUCE_PARTITIONS_MAX, "partitions")
    require_transaction(services, exchange, request)
    return entries


class Produced:
    """A request whose batches are staged (``api.context.Staged``)."""

    __slots__ = ("_exchange", "_outcomes", "_request", "_services")

    def __init__(
        self,
        services: Services,
        exchange: Exchange,
        request: ProduceRequest | OneBatch,
        outcomes: list[Outcome],
    ) -> None:
        self._services = services
        self._exchange = exchange
        self._request = request
        self._outcomes = outcomes

    def finish(self) -> Reply:
        """What became of it. CloseConnectionError: an error, and acks=0 has no place for it."""
        request = self._request
        if isinstance(request, OneBatch):
            reply = self._of_one(request)
            if reply is not None:
                return reply
        outcomes = iter(self._outcomes)
        waiting: Waiting = {}
        responses = [
            TopicProduceResponse(
                name=topic.name,
                partition_responses=[
                    self._partition_answer(topic.name, data, *next(outcomes), waiting)
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
        if request.acks == 0:
            return UNANSWERED
        response = ProduceResponse(responses=responses)
        if waiting:
            timeout_ms = request.timeout_ms
            return _park(self._services, self._exchange, response, waiting, timeout_ms)
        return response

    def _of_one(self, request: OneBatch) -> Reply | None:
        """The answer that nearly all get; None where there is more to say."""
        partition, result = self._outcomes[0]
        if (
            partition is None
            or result.error is not None
            or partition.must_wait(request.acks, result.last_offset)
        ):
            return None
        partition.counters.produces += 1
        if request.acks == 0:
            return UNANSWERED
        return Encoded(
            answer_one(
                request,
                self._exchange.api_version,
                result.base_offset,
                result.log_append_time_ms,
                result.log_start_offset,
            )
        )

    def _partition_answer(
        self,
        topic: str,
        data: PartitionProduceData,
        partition: Partition | None,
        result: AppendResult,
        waiting: Waiting,
    ) -> PartitionProduceResponse:
        error, acks = result.error, self._request.acks
        if error is not None or partition is None:
            error = error or KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
            _count_failure(self._services, topic, data.index, len(data.records or b""), error)
            if acks == 0:
                raise CloseConnectionError(f"acks=0 and error {error.code.name}")
            return _failed(data.index, error)
        partition.counters.produces += 1
        response = _succeeded(data.index, result)
        if partition.must_wait(acks, result.last_offset):
            waiting[partition] = (result.last_offset + 1, response)
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
    """A look inside a batch that is not for the event loop."""

    def __init__(self, batch: RecordBatch, config: LogConfig, now_ms: int) -> None:
        self._batch = batch
        self._config = config
        self._now_ms = now_ms
        self._error: KafkaError | None = None

    def __call__(self) -> None:
        try:
            self._batch = look_inside(self._batch, self._config, self._now_ms)
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
