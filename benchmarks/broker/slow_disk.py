"""The longest turn of the broker's event loop under a mixed load on a slow disk.

    .venv/bin/python benchmarks/broker/slow_disk.py simulated      # each wait for the disk: 50 ms
    .venv/bin/python benchmarks/broker/slow_disk.py real DIR       # page cache dropped all the time

The broker runs in this process, its clients in another. Turns are measured by the broker's watch
(``server/turns.py``), in seconds and in processor seconds of the loop's thread: on a machine with
other work the first say besides how long others had the processor. On the simulated disk it is
known which thread waited for it; that of the loop never does. For turns beyond 20 ms the place is
printed where they were then. Ends with 1 when a turn took more processor time on a real disk, or
the loop waited for the simulated one.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from size_files import drop_files

from penstock_broker.config import BrokerConfig
from penstock_broker.log.files import Files, OsFiles
from penstock_broker.server.broker import Broker
from penstock_broker.server.turns import SLOW_TURN_SECONDS, TurnWatch
from penstock_broker.testing.mem_files import MemFiles
from penstock_broker.testing.raw_client import RawClient
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock_broker.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock_broker.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock_broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock_broker.wire.messages.init_producer_id import InitProducerIdRequest
from penstock_broker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock_broker.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

WAIT_SECONDS = 0.05
SEGMENT_BYTES = 4 << 20
BATCH_BYTES = 100_000
PARTITIONS = 4


# -- the load, in a process of its own ---------------------------------------------------------


def produce(client: RawClient, number: int) -> None:
    batch = build_batch([NewRecord(None, bytes(1_000), time.time_ns() // 1_000_000)] * 10)
    data = PartitionProduceData(index=number % PARTITIONS, records=memoryview(batch))
    topics = [TopicProduceData(name="live", partition_data=[data])]
    client.ask(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics), 9)


def fetch(client: RawClient, number: int) -> None:
    wanted = [
        FetchPartition(partition=index, fetch_offset=number % 300, partition_max_bytes=1 << 20)
        for index in range(PARTITIONS)
    ]
    topics = [FetchTopic(topic="cold", partitions=wanted)]
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=8 << 20, session_epoch=-1, topics=topics
    )
    client.ask(request, 11)


def look_up(client: RawClient, number: int) -> None:
    partitions = [
        ListOffsetsPartition(partition_index=index, timestamp=-3 if number % 2 else 1_000 + number)
        for index in range(PARTITIONS)
    ]
    topics = [ListOffsetsTopic(name="cold", partitions=partitions)]
    client.ask(ListOffsetsRequest(topics=topics), 7)


def make_topics(client: RawClient, number: int) -> None:
    names = [f"t-{os.getpid()}-{number}-{each}" for each in range(20)]
    topics = [CreatableTopic(name=n, num_partitions=3, replication_factor=1) for n in names]
    client.ask(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 7)
    for name in names[:5]:  # the first append of a leader epoch, and its records' end
        data = PartitionProduceData(
            index=0, records=memoryview(build_batch([NewRecord(None, b"x", 1)] * 3))
        )
        asked = [TopicProduceData(name=name, partition_data=[data])]
        client.ask(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=asked), 9)
        cut = DeleteRecordsPartition(partition_index=0, offset=2)
        client.ask(
            DeleteRecordsRequest(
                topics=[DeleteRecordsTopic(name=name, partitions=[cut])], timeout_ms=30_000
            ),
            2,
        )
    gone = [DeleteTopicState(name=name) for name in names]
    client.ask(DeleteTopicsRequest(topics=gone, timeout_ms=30_000), 6)


def new_producers(client: RawClient, number: int) -> None:
    client.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 4)


LOADS: tuple[Callable[[RawClient, int], None], ...] = (
    produce, produce, fetch, fetch, look_up, make_topics, new_producers,
)  # fmt: skip


def run_load(host: str, port: int, seconds: float) -> None:
    """Every kind of request at a time, for so long; how many of each there were."""
    until = time.monotonic() + seconds
    counts = [0] * len(LOADS)

    def run(place: int) -> None:
        with RawClient(host, port) as client:
            while time.monotonic() < until:
                LOADS[place](client, counts[place])
                counts[place] += 1

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(LOADS))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done = ", ".join(f"{load.__name__} {count}" for load, count in zip(LOADS, counts, strict=True))
    print(f"requests: {done}", flush=True)


# -- the broker --------------------------------------------------------------------------------


class SlowDisk(MemFiles):
    """Waits for the disk as a slow one does, and knows in which thread."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: dict[str, int] = {}
        self.on_wait = self._wait

    def _wait(self, operation: str, path: Path) -> None:
        where = "loop" if threading.current_thread() is threading.main_thread() else "threads"
        key = f"{operation} in {where}"
        self.waits[key] = self.waits.get(key, 0) + 1
        time.sleep(WAIT_SECONDS)


def sample(broker: Broker, places: dict[str, int], ended: threading.Event) -> None:
    """Look where a slow turn is, once for each."""
    turns, main, seen = broker.observation.turns, threading.main_thread().ident, 0.0
    while not ended.wait(0.002):
        began = turns.began_at
        if began and began != seen and time.perf_counter() - began > SLOW_TURN_SECONDS:
            seen = began
            frame = sys._current_frames().get(main or 0)
            stack = traceback.extract_stack(frame)[-4:]
            place = " < ".join(f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in stack[::-1])
            places[place] = places.get(place, 0) + 1


def fill(broker: Broker, megabytes: int) -> None:
    settings = {"segment.bytes": str(SEGMENT_BYTES)}
    broker.topics.create("cold", PARTITIONS, settings)
    broker.topics.create("live", PARTITIONS, settings)
    for number in range(megabytes * 1_000_000 // BATCH_BYTES // PARTITIONS):
        for index in range(PARTITIONS):
            batch = build_batch([NewRecord(None, bytes(1_000), 1_000 + number)] * 100)
            broker.replicas.partition("cold", index).append(memoryview(batch))


async def measure(files: Files, data_dir: Path, seconds: float, megabytes: int) -> int:
    """Serve the load; 1 when a turn took too long."""
    settings = {"log.flush.offset.checkpoint.interval.ms": "500", "log.retention.ms": "-1"}
    broker = Broker(BrokerConfig.parse(settings), data_dir, files=files)
    if isinstance(files, SlowDisk):
        files.on_wait = lambda operation, path: None
    host, port = await broker.start("127.0.0.1", 0)
    fill(broker, megabytes)
    if isinstance(files, SlowDisk):
        files.is_cold = True
        files.on_wait = files._wait
    ended, places = threading.Event(), dict[str, int]()
    watching = [threading.Thread(target=sample, args=(broker, places, ended))]
    if not isinstance(files, SlowDisk):

        def drop() -> None:
            while not ended.wait(0.5):
                drop_files([*data_dir.glob("cold-*/*"), *data_dir.glob("live-*/*")])

        watching.append(threading.Thread(target=drop))
    gc.collect()
    gc.freeze()  # as the process does after its start
    turns = broker.observation.turns
    turns.start_over()
    working = TurnWatch(time.thread_time)
    working.watch(asyncio.get_running_loop())
    cpu = time.thread_time()
    for thread in watching:
        thread.start()
    load: Any = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "load", host, str(port), str(seconds), stdout=subprocess.PIPE
    )
    out, _ = await load.communicate()
    longest, slow, cpu = turns.longest_seconds, turns.slow, time.thread_time() - cpu
    busiest, busy = working.longest_seconds, working.slow
    ended.set()
    for thread in watching:
        thread.join()
    print(out.decode().strip())
    print(f"longest turn {longest * 1e3:.1f} ms; {slow} beyond 20 ms")
    print(f"by processor time {busiest * 1e3:.1f} ms; {busy} beyond 20 ms; {cpu:.1f} s in all")
    for place, count in sorted(places.items(), key=lambda item: -item[1])[:10]:
        print(f"{count:5} x {place}")
    if isinstance(files, SlowDisk):
        files.on_wait = lambda operation, path: None
        print(f"waits for the disk: {files.waits}")
        # The simulation itself takes long over names, in the loop as well: only waits count.
        busy = sum(count for where, count in files.waits.items() if where.endswith("loop"))
    await broker.stop()
    return 1 if busy else 0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("disk", choices=("simulated", "real", "load"))
    parser.add_argument("rest", nargs="*")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--megabytes", type=int, default=0)
    given = parser.parse_args()
    if given.disk == "load":
        host, port, seconds = given.rest
        run_load(host, int(port), float(seconds))
        return 0
    if given.disk == "simulated":
        size = given.megabytes or 60
        return asyncio.run(measure(SlowDisk(), Path("/data"), given.seconds, size))
    with tempfile.TemporaryDirectory(dir=given.rest[0] if given.rest else None) as directory:
        size = given.megabytes or 400
        return asyncio.run(measure(OsFiles(), Path(directory) / "data", given.seconds, size))


if __name__ == "__main__":
    sys.exit(main())
