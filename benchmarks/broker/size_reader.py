"""One consumer in a process of its own, for ``size.py``.

    size_reader.py BOOTSTRAP TOPIC OFFSET --count N        read so many records, and end
    size_reader.py BOOTSTRAP TOPIC OFFSET --megabytes N    read so many MB/s, from the offset again
                                                           at the log's end, until standard input
                                                           ends

Prints ``ready`` when it is connected, and a line of JSON at its end: ``bytes`` of keys and values,
``seconds``, and ``ended`` by the machine's monotonic clock.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time

from bench_generators import CONSUMER
from confluent_kafka import Consumer, TopicPartition

PACED = {"queued.min.messages": 1_000, "queued.max.messages.kbytes": 16_384}
"""Little beforehand: what is fetched is then what is read."""


def read(consumer: Consumer, count: int) -> int:
    """So many records; their bytes."""
    seen = size = 0
    while seen < count:
        messages = consumer.consume(min(10_000, count - seen), timeout=1)
        seen += len(messages)
        size += sum(len(message) for message in messages)
    return size


def read_paced(consumer: Consumer, place: TopicPartition, bytes_a_second: float) -> int:
    """Until standard input ends; bytes."""
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    began, size = time.monotonic(), 0
    while not ended.is_set():
        early = size / bytes_a_second - (time.monotonic() - began)
        if early > 0 and ended.wait(min(early, 1)):
            break
        messages = consumer.consume(2_000, timeout=0.5)
        if not messages:
            consumer.seek(place)
        size += sum(len(message) for message in messages)
    return size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("offset", type=int)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--megabytes", type=float, default=0)
    given = parser.parse_args()
    settings = {"bootstrap.servers": given.bootstrap, "group.id": "size", **CONSUMER}
    consumer = Consumer({**settings, **(PACED if given.megabytes else {})})
    place = TopicPartition(given.topic, 0, given.offset)
    consumer.get_watermark_offsets(place, timeout=60)
    consumer.assign([place])
    print("ready", flush=True)
    began = time.monotonic()
    if given.megabytes:
        size = read_paced(consumer, place, given.megabytes * 1e6)
    else:
        size = read(consumer, given.count)
    ended = time.monotonic()
    print(json.dumps({"bytes": size, "seconds": ended - began, "ended": ended}), flush=True)
    consumer.close()


if __name__ == "__main__":
    main()
