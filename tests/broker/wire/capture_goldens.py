"""Rewrites `golden/apache_kafka.json` from a real Apache Kafka.

    python tests/broker/wire/capture_goldens.py HOST:PORT [JAVA_CLASSPATH]

Keeps raw answers of the broker, and record batches as librdkafka and (with a class path that holds
kafka-tools) Java's console producer wrote them, one per codec. Run it by hand; the tests only read
the file. Topics named `wire-golden-...` are made and deleted.
"""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock_broker.wire.apis import APIS
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.header import RequestHeader, encode_request_header
from penstock_broker.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock_broker.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from penstock_broker.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterEntityData,
    AlterEntryData,
    OpData,
)
from penstock_broker.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from penstock_broker.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from penstock_broker.wire.messages.api_versions import ApiVersionsRequest
from penstock_broker.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from penstock_broker.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock_broker.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock_broker.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from penstock_broker.wire.messages.describe_cluster import DescribeClusterRequest
from penstock_broker.wire.messages.describe_configs import (
    RESOURCE_TOPIC,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from penstock_broker.wire.messages.describe_groups import DescribeGroupsRequest
from penstock_broker.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from penstock_broker.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersRequestTopic,
)
from penstock_broker.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestTopic,
)
from penstock_broker.wire.messages.describe_transactions import DescribeTransactionsRequest
from penstock_broker.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from penstock_broker.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersTopicPartitions,
)
from penstock_broker.wire.messages.end_txn import EndTxnRequest
from penstock_broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock_broker.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock_broker.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock_broker.wire.messages.init_producer_id import InitProducerIdRequest
from penstock_broker.wire.messages.list_groups import ListGroupsRequest
from penstock_broker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock_broker.wire.messages.list_transactions import ListTransactionsRequest
from penstock_broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock_broker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock_broker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from penstock_broker.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from penstock_broker.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from penstock_broker.wire.schema import Struct, decode, encode

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
GOLDEN = Path(__file__).parent / "golden" / "apache_kafka.json"


class RawClient:
    """One blocking connection that speaks with our codec."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=20)
        self.serial = 0

    def ask(self, request: Struct, key: int, version: int) -> bytes:
        """Send a request; give the response's body."""
        self.serial += 1
        flexible = APIS[key].flexible(version)
        header = RequestHeader(key, version, self.serial, "golden")
        frame = encode_request_header(header, flexible) + encode(request, version)
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", self._receive(4))
        answer = self._receive(size)
        return answer[5 if flexible and key != 18 else 4 :]

    def _receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise ConnectionError("the broker closed the connection")
            data += part
        return data


def requests(topic: str) -> list[tuple[int, int, Struct]]:
    """What to ask: (key, version, request)."""
    asked: list[tuple[int, int, Struct]] = []
    software = {"client_software_name": "golden", "client_software_version": "1"}
    asked += [(18, v, ApiVersionsRequest(**software)) for v in range(5)]
    named = [MetadataRequestTopic(name=topic)]
    asked += [(3, v, MetadataRequest(topics=named)) for v in range(13)]
    asked += [(60, 0, DescribeClusterRequest(include_cluster_authorized_operations=True))]
    resource = DescribeConfigsResource(resource_type=RESOURCE_TOPIC, resource_name=topic)
    asked += [
        (32, v, DescribeConfigsRequest(resources=[resource], include_synonyms=True)) for v in (1, 4)
    ]
    for version in range(5):
        keys = {"key": "g"} if version < 4 else {"coordinator_keys": ["g"]}
        asked.append((10, version, FindCoordinatorRequest(**keys)))  # type: ignore[arg-type]
    asked += [(22, v, InitProducerIdRequest(transaction_timeout_ms=1000)) for v in range(5)]
    asked += [(16, v, ListGroupsRequest()) for v in range(5)]
    end = ListOffsetsTopic(
        name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)]
    )
    asked += [(2, v, ListOffsetsRequest(topics=[end])) for v in range(1, 8)]
    asked += [(1, v, fetch_request(topic)) for v in (4, 11, 12)]
    return asked


def data_requests(topic: str, topic_id: uuid.UUID) -> list[tuple[int, int, Struct]]:
    """The versions of the data path that know topics by id, and those that came with them."""
    by_id = fetch_request(topic)
    by_id.topics[0].topic_id = topic_id
    fenced = fetch_request(topic)
    fenced.topics[0].topic_id = topic_id
    fenced.topics[0].partitions[0].current_leader_epoch = 99
    asked: list[tuple[int, int, Struct]] = [(1, v, by_id) for v in (13, 15, 16, 17)]
    asked.append((1, 17, fenced))
    batch = build_batch([NewRecord(b"k", b"v", 1_700_000_000_000)])
    for version in (3, 5, 8, 9, 10, 11):
        data = PartitionProduceData(index=0, records=memoryview(batch))
        missing = PartitionProduceData(index=77, records=memoryview(batch))
        produced = [TopicProduceData(name=topic, partition_data=[data, missing])]
        asked.append((0, version, ProduceRequest(acks=1, timeout_ms=9_000, topic_data=produced)))
    for timestamp, version in ((-4, 8), (-5, 9), (-3, 9), (-6, 9)):
        wanted = [ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
        topics = [ListOffsetsTopic(name=topic, partitions=wanted)]
        asked.append((2, version, ListOffsetsRequest(topics=topics)))
    commit = OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    committed = [OffsetCommitRequestTopic(name=topic, partitions=[commit])]
    for version in (2, 7, 9):
        asked.append((8, version, OffsetCommitRequest(group_id="wire-golden", topics=committed)))
    group = OffsetFetchRequestGroup(group_id="wire-golden", topics=None)
    asked += [(9, v, OffsetFetchRequest(groups=[group])) for v in (8, 9)]
    asked.append((9, 7, OffsetFetchRequest(group_id="wire-golden", topics=None)))
    asked += [(10, v, FindCoordinatorRequest(coordinator_keys=["wire-golden"])) for v in (5, 6)]
    asked.append((16, 5, ListGroupsRequest(types_filter=["classic"])))
    asked.append((15, 5, DescribeGroupsRequest(groups=["wire-golden"])))
    asked.append((22, 5, InitProducerIdRequest(transaction_timeout_ms=1000)))
    return asked


def transaction_requests(topic: str) -> list[tuple[int, int, Struct]]:
    """A producer id that no producer has: refusals show the shape as well."""
    who = {"transactional_id": "wire-golden", "producer_id": 1, "producer_epoch": 0}
    added = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="wire-golden",
        v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
    )
    offsets = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    offset_topics = [TxnOffsetCommitRequestTopic(name=topic, partitions=[offsets])]
    producers = DescribeProducersRequestTopic(name=topic, partition_indexes=[0, 77])
    asked: list[tuple[int, int, Struct]] = [(24, v, added) for v in (0, 3)]
    asked += [(25, v, AddOffsetsToTxnRequest(group_id="g", **who)) for v in (0, 4)]  # type: ignore[arg-type]
    asked += [(26, v, EndTxnRequest(committed=True, **who)) for v in (0, 4)]  # type: ignore[arg-type]
    asked += [
        (28, v, TxnOffsetCommitRequest(group_id="g", topics=offset_topics, **who))  # type: ignore[arg-type]
        for v in (0, 4)
    ]
    asked.append((61, 0, DescribeProducersRequest(topics=[producers])))
    asked.append((65, 0, DescribeTransactionsRequest(transactional_ids=["wire-golden-none"])))
    asked += [(66, v, ListTransactionsRequest(state_filters=["Odd", "Ongoing"])) for v in (0, 1)]
    return asked


def admin_requests(topic: str) -> list[tuple[int, int, Struct]]:
    """What administers topics, partitions, settings, credentials and quotas. What is changed is
    changed first, so that it is there when it is described."""
    entity = [AlterEntityData(entity_type="client-id", entity_name="wire-golden")]
    limits = [OpData(key="producer_byte_rate", value=12345.0)]
    quotas = AlterClientQuotasRequest(entries=[AlterEntryData(entity=entity, ops=limits)])
    asked: list[tuple[int, int, Struct]] = [(49, v, quotas) for v in (0, 1)]
    partitions = [ElectLeadersTopicPartitions(topic=topic, partitions=[0, 77])]
    asked += [(43, v, ElectLeadersRequest(topic_partitions=partitions)) for v in range(3)]
    placed = [DescribableLogDirTopic(topic=topic, partitions=[0])]
    asked += [(35, v, DescribeLogDirsRequest(topics=placed)) for v in range(1, 5)]
    moved = [AlterReplicaLogDirTopic(name=topic, partitions=[0])]
    moves = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path="/none", topics=moved)])
    asked += [(34, v, moves) for v in (1, 2)]
    names = [DescribeTopicPartitionsRequestTopic(name=name) for name in (topic, "wire-none")]
    asked.append((75, 0, DescribeTopicPartitionsRequest(topics=names)))
    asked.append((60, 1, DescribeClusterRequest()))
    trial = [
        CreatableTopic(name=topic + "-trial", num_partitions=1, replication_factor=1),
        CreatableTopic(name="a b", num_partitions=1, replication_factor=1),
    ]
    asked += [(19, v, CreateTopicsRequest(topics=trial, validate_only=True)) for v in (2, 5, 7)]
    grown = [CreatePartitionsTopic(name=topic, count=1)]
    asked += [(37, v, CreatePartitionsRequest(topics=grown, timeout_ms=9_000)) for v in (0, 3)]
    asked.append(
        (20, 6, DeleteTopicsRequest(topics=[DeleteTopicState(name="wire-none")], timeout_ms=9_000))
    )
    change = AlterableConfig(name="retention.ms", config_operation=0, value="x")
    altered = [AlterConfigsResource(resource_type=2, resource_name=topic, configs=[change])]
    asked += [(44, v, IncrementalAlterConfigsRequest(resources=altered)) for v in (0, 1)]
    upsertion = ScramCredentialUpsertion(
        name="wire-golden", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"x" * 32
    )
    deletion = ScramCredentialDeletion(name="wire-none", mechanism=2)
    asked.append(
        (51, 0, AlterUserScramCredentialsRequest(upsertions=[upsertion], deletions=[deletion]))
    )
    users = [UserName(name="wire-golden"), UserName(name="wire-none")]
    asked.append((50, 0, DescribeUserScramCredentialsRequest(users=users)))
    component = ComponentData(entity_type="client-id", match_type=0, match="wire-golden")
    asked += [(48, v, DescribeClientQuotasRequest(components=[component])) for v in (0, 1)]
    return asked


def fetch_request(topic: str) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=1000, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[partition])]
    )


def produce(address: str, topic: str, codec: str) -> None:
    producer = Producer(
        {"bootstrap.servers": address, "compression.type": codec, "linger.ms": 500, "acks": "all"}
    )
    for n in range(30):
        producer.produce(
            topic,
            key=None if n % 3 == 0 else f"key-{n}",
            value=None if n % 7 == 6 else f"value-{n}-" + "x" * (n * 10),
            headers=[("h", b"1"), ("empty", None)] if n % 4 == 0 else None,
            timestamp=1_700_000_000_000 + n * 1000,
            partition=0,
        )
    producer.flush(20)


def produce_with_java(address: str, topic: str, codec: str, classpath: str) -> None:
    lines = "".join(f"key-{n}\tvalue-{n}-{'x' * (n * 10)}\n" for n in range(30))
    options = ["--bootstrap-server", address, "--topic", topic, "--compression-codec", codec]
    options += ["--reader-property", "parse.key=true", "--timeout", "500"]
    program = ["java", "-Xmx128m", "-cp", classpath, "org.apache.kafka.tools.ConsoleProducer"]
    subprocess.run([*program, *options], input=lines.encode(), check=True, timeout=60)


def main() -> None:
    address, classpath = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
    admin = AdminClient({"bootstrap.servers": address})
    run = uuid.uuid4().hex[:6]
    writers = ("librdkafka", "java") if classpath else ("librdkafka",)
    names = {(w, c): f"wire-golden-{w}-{c}-{run}" for w in writers for c in CODECS}
    for future in admin.create_topics([NewTopic(t, 1, 1) for t in names.values()]).values():
        future.result(20)
    for (writer, codec), topic in names.items():
        if writer == "java":
            produce_with_java(address, topic, codec, classpath or "")
        else:
            produce(address, topic, codec)
    client = RawClient(address)
    batches: dict[str, str] = {}
    for (writer, codec), topic in names.items():
        body = client.ask(fetch_request(topic), 1, 12)
        answer: Any = decode(APIS[1].response, 12, body)[0]
        batches[f"{writer}-{codec}"] = bytes(answer.responses[0].partitions[0].records).hex()
    topic = names["librdkafka", "gzip"]
    named = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    known: Any = decode(APIS[3].response, 12, client.ask(named, 3, 12))[0]
    asked = [
        *requests(topic),
        *data_requests(topic, known.topics[0].topic_id),
        *transaction_requests(topic),
        *admin_requests(topic),
    ]
    responses = [
        {"key": key, "version": version, "hex": client.ask(request, key, version).hex()}
        for key, version, request in asked
    ]
    for future in admin.delete_topics(list(names.values())).values():
        future.result(20)
    GOLDEN.write_text(json.dumps({"batches": batches, "responses": responses}, indent=1) + "\n")


if __name__ == "__main__":
    main()
