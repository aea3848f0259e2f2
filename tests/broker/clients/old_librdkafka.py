"""An old librdkafka by its C API, in a process of its own: what kcat does, without kcat.

    python old_librdkafka.py LIBRARY < request.json

``LIBRARY`` is the shared library from a wheel of confluent-kafka for another Python; ctypes loads
it into any Python. The request is one JSON object: ``do`` (one of ``DOES``), ``config``, and what
that step needs; the answer is one line of JSON. Bytes travel as Latin-1 text.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from collections.abc import Callable
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_ssize_t, c_void_p
from typing import Any

PRODUCER, CONSUMER = 0, 1
END, TOPIC, PARTITION, VALUE, KEY, MSGFLAGS, HEADER = 0, 1, 3, 4, 5, 7, 9  # rd_kafka_vtype_t
COPY = 2  # RD_KAFKA_MSG_F_COPY
PARTITION_EOF = -191  # RD_KAFKA_RESP_ERR__PARTITION_EOF
DEADLINE_SECONDS = 120.0
CALL_MS = 60_000


class Message(ctypes.Structure):
    """rd_kafka_message_t."""

    _fields_ = [
        ("err", c_int),
        ("topic", c_void_p),
        ("partition", c_int32),
        ("payload", c_void_p),
        ("len", c_size_t),
        ("key", c_void_p),
        ("key_len", c_size_t),
        ("offset", c_int64),
        ("private", c_void_p),
    ]


class Place(ctypes.Structure):
    """rd_kafka_topic_partition_t."""

    _fields_ = [
        ("topic", c_char_p),
        ("partition", c_int32),
        ("offset", c_int64),
        ("metadata", c_void_p),
        ("metadata_size", c_size_t),
        ("opaque", c_void_p),
        ("err", c_int),
        ("private", c_void_p),
    ]


class Places(ctypes.Structure):
    """rd_kafka_topic_partition_list_t."""

    _fields_ = [("count", c_int), ("size", c_int), ("elements", POINTER(Place))]


class TopicMetadata(ctypes.Structure):
    """rd_kafka_metadata_topic_t."""

    _fields_ = [
        ("topic", c_char_p),
        ("partition_count", c_int),
        ("partitions", c_void_p),
        ("err", c_int),
    ]


class Metadata(ctypes.Structure):
    """rd_kafka_metadata_t."""

    _fields_ = [
        ("broker_count", c_int),
        ("brokers", c_void_p),
        ("topic_count", c_int),
        ("topics", POINTER(TopicMetadata)),
        ("origin", c_int32),
        ("origin_name", c_char_p),
    ]


DELIVERED = ctypes.CFUNCTYPE(None, c_void_p, POINTER(Message), c_void_p)
RESULTS = {
    "rd_kafka_version_str": c_char_p,
    "rd_kafka_err2str": c_char_p,
    "rd_kafka_conf_new": c_void_p,
    "rd_kafka_new": c_void_p,
    "rd_kafka_topic_partition_list_new": POINTER(Places),
    "rd_kafka_topic_partition_list_add": POINTER(Place),
    "rd_kafka_consumer_poll": POINTER(Message),
    "rd_kafka_init_transactions": c_void_p,
    "rd_kafka_begin_transaction": c_void_p,
    "rd_kafka_commit_transaction": c_void_p,
    "rd_kafka_abort_transaction": c_void_p,
    "rd_kafka_error_string": c_char_p,
}


class Client:
    """One handle of the library."""

    def __init__(self, path: str, kind: int, config: dict[str, str]) -> None:
        self.library = ctypes.CDLL(path)
        for name, result in RESULTS.items():
            getattr(self.library, name).restype = result
        conf = c_void_p(self.library.rd_kafka_conf_new())
        why = ctypes.create_string_buffer(512)
        for name, value in config.items():
            if self.library.rd_kafka_conf_set(
                conf, name.encode(), value.encode(), why, c_size_t(512)
            ):
                raise SystemExit(why.value.decode())
        self.offsets: list[int] = []
        self.failures: list[str] = []
        self._delivered = DELIVERED(self._note)  # kept: the library holds only its address
        if kind == PRODUCER:
            self.library.rd_kafka_conf_set_dr_msg_cb(conf, self._delivered)
        self.handle = c_void_p(self.library.rd_kafka_new(kind, conf, why, c_size_t(512)))
        if not self.handle:
            raise SystemExit(why.value.decode())

    def _note(self, _handle: int, message: Any, _opaque: int) -> None:
        if message.contents.err:
            self.failures.append(self.named(message.contents.err))
        else:
            self.offsets.append(message.contents.offset)

    def named(self, code: int) -> str:
        return str(self.library.rd_kafka_err2str(code).decode())

    def check(self, code: int) -> None:
        if code:
            raise SystemExit(self.named(code))

    def step(self, error: int | None) -> None:
        """A call that answers rd_kafka_error_t: None is success."""
        if error is not None:
            raise SystemExit(self.library.rd_kafka_error_string(c_void_p(error)).decode())

    def places(self, topic: str, partition: int, offset: int) -> Any:
        found = self.library.rd_kafka_topic_partition_list_new(1)
        added = self.library.rd_kafka_topic_partition_list_add(
            found, topic.encode(), c_int32(partition)
        )
        added.contents.offset = offset
        return found

    def close(self) -> None:
        self.library.rd_kafka_destroy(self.handle)


def produce(path: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Records ``[key, value, {header: value}]`` to partition 0, in a transaction if asked."""
    client = Client(path, PRODUCER, asked["config"])
    transactional = "transactional.id" in asked["config"]
    if transactional:
        client.step(client.library.rd_kafka_init_transactions(client.handle, CALL_MS))
        client.step(client.library.rd_kafka_begin_transaction(client.handle))
    for key, value, headers in asked["records"]:
        arguments: list[Any] = [c_int(TOPIC), c_char_p(asked["topic"].encode())]
        arguments += [c_int(PARTITION), c_int32(0), c_int(MSGFLAGS), c_int(COPY)]
        body = value.encode("latin-1")
        arguments += [c_int(VALUE), c_char_p(body), c_size_t(len(body))]
        if key is not None:
            name = key.encode("latin-1")
            arguments += [c_int(KEY), c_char_p(name), c_size_t(len(name))]
        for header, held in headers.items():
            content = held.encode("latin-1")
            arguments += [c_int(HEADER), c_char_p(header.encode())]
            arguments += [c_char_p(content), c_ssize_t(len(content))]
        client.check(client.library.rd_kafka_producev(client.handle, *arguments, c_int(END)))
    client.check(client.library.rd_kafka_flush(client.handle, CALL_MS))
    if transactional:
        end = "abort" if asked.get("abort") else "commit"
        call = getattr(client.library, f"rd_kafka_{end}_transaction")
        client.step(call(client.handle, CALL_MS))
    client.close()
    return {"offsets": client.offsets, "failures": client.failures}


def consume(path: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Partition 0 from its start to its end, or ``count`` records as a member of a group."""
    config = asked["config"] | {"enable.partition.eof": "true"}
    client = Client(path, CONSUMER, config)
    client.library.rd_kafka_poll_set_consumer(client.handle)
    count = asked.get("count")
    if count is None:
        client.check(
            client.library.rd_kafka_assign(client.handle, client.places(asked["topic"], 0, 0))
        )
    else:
        subscribed = client.places(asked["topic"], -1, -1001)
        client.check(client.library.rd_kafka_subscribe(client.handle, subscribed))
    records: list[Any] = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    while count is None or len(records) < count:
        if time.monotonic() > deadline:
            raise SystemExit(f"{len(records)} records, and no more come")
        message = client.library.rd_kafka_consumer_poll(client.handle, 200)
        if not message:
            continue
        code = message.contents.err
        if code != PARTITION_EOF:
            client.check(code)
            records.append(_record(client, message))
        client.library.rd_kafka_message_destroy(message)  # or the handle's end waits for it
        if code == PARTITION_EOF and count is None:
            break
    if count is not None:
        client.check(client.library.rd_kafka_commit(client.handle, None, 0))
    client.check(client.library.rd_kafka_consumer_close(client.handle))
    client.close()
    return {"records": records}


def _record(client: Client, message: Any) -> list[Any]:
    found = message.contents
    key = None if not found.key else ctypes.string_at(found.key, found.key_len).decode("latin-1")
    value = ctypes.string_at(found.payload, found.len).decode("latin-1")
    headers, held = {}, c_void_p()
    if not client.library.rd_kafka_message_headers(message, byref(held)):
        name, content, size = c_char_p(), c_void_p(), c_size_t()
        at = 0
        while not client.library.rd_kafka_header_get_all(
            held, c_size_t(at), byref(name), byref(content), byref(size)
        ):
            text = ctypes.string_at(content, size.value).decode("latin-1")
            headers[(name.value or b"").decode()] = text
            at += 1
    return [key, value, headers, found.offset]


def look(path: str, asked: dict[str, Any]) -> dict[str, Any]:
    """The topics, partition 0's watermarks, and its offsets at the given times."""
    client = Client(path, PRODUCER, asked["config"])
    metadata = POINTER(Metadata)()
    client.check(client.library.rd_kafka_metadata(client.handle, 1, None, byref(metadata), CALL_MS))
    held = metadata.contents
    topics = {
        held.topics[n].topic.decode(): held.topics[n].partition_count
        for n in range(held.topic_count)
    }
    low, high = c_int64(), c_int64()
    topic = asked["topic"]
    client.check(
        client.library.rd_kafka_query_watermark_offsets(
            client.handle, topic.encode(), c_int32(0), byref(low), byref(high), CALL_MS
        )
    )
    at = []
    for time_ms in asked["times_ms"]:
        places = client.places(topic, 0, time_ms)
        client.check(client.library.rd_kafka_offsets_for_times(client.handle, places, CALL_MS))
        client.check(places.contents.elements[0].err)
        at.append(places.contents.elements[0].offset)
    client.close()
    return {"topics": topics, "watermarks": [low.value, high.value], "at": at}


def version(path: str, asked: dict[str, Any]) -> dict[str, Any]:
    client = Client(path, PRODUCER, asked["config"])
    found = client.library.rd_kafka_version_str().decode()
    client.close()
    return {"version": found}


DOES: dict[str, Callable[[str, dict[str, Any]], dict[str, Any]]] = {
    "produce": produce,
    "consume": consume,
    "look": look,
    "version": version,
}

if __name__ == "__main__":
    request = json.load(sys.stdin)
    sys.stdout.write(json.dumps(DOES[request["do"]](sys.argv[1], request)) + "\n")
