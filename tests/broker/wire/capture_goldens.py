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
from penstock_broker.wire.header import RequestHeader, encode_request_header
from penstock_broker.wire.messages.api_versions import ApiVersionsRequest
from penstock_broker.wire.messages.describe_cluster import DescribeClusterRequest
from penstock_broker.wire.messages.describe_configs import (
    RESOURCE_TOPIC,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from penstock_broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock_broker.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock_broker.wire.messages.init_producer_id import InitProducerIdRequest
from penstock_broker.wire.messages.list_groups import ListGroupsRequest
from penstock_broker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock_broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
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
    responses = [
        {"key": key, "version": version, "hex": client.ask(request, key, version).hex()}
        for key, version, request in requests(names["librdkafka", "gzip"])
    ]
    for future in admin.delete_topics(list(names.values())).values():
        future.result(20)
    GOLDEN.write_text(json.dumps({"batches": batches, "responses": responses}, indent=1) + "\n")


if __name__ == "__main__":
    main()
