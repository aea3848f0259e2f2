"""kill -9 under load, again and again: nothing acknowledged is lost, nothing is there twice.

    python benchmarks/broker/kill_loop.py [--kills 200] [--seed N] [--keep DIRECTORY]

Three producers write with acks=all while the broker, which never syncs before it acknowledges, is
killed at random moments, sometimes already while it starts:

* ``audited``: idempotent, so each record must be there exactly once, in order, at the offset
  that its producer was given;
* ``plain``: without idempotence, so each record must be there at the acknowledged offset, and
  may be there again at another;
* ``table``: idempotent, compacted all the time in small segments: at the end each key has the value
  written last.

A reader follows all three and seeks back a little after each kill. It records which value it saw at
which offset: no offset may ever show another value, to this reader or to the complete read at the
end. At last ``check-log`` checks every file.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock_broker.testing.broker_process import BrokerProcess

WAIT = 60.0
PARTITIONS = {"audited": 3, "plain": 2, "table": 1}
KEYS = 200
STARTS_KILLED = 0.15
PROGRESS = 100
"""Records that each producer gets acknowledged between two kills, at least."""
Place = tuple[str, int, int]


class Writer:
    """A producer in a thread: numbers its records, and notes where each was put."""

    def __init__(self, bootstrap: str, topic: str, *, idempotent: bool) -> None:
        self.topic = topic
        self.acknowledged: dict[int, Place] = {}
        self.failed: list[str] = []
        self.produced = 0
        self.last_of_key: dict[int, int] = {}
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": idempotent,
                "acks": "all",
                "linger.ms": 1,
                "batch.num.messages": 50,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "retry.backoff.ms": 10,
                "retry.backoff.max.ms": 100,
                "topic.metadata.refresh.fast.interval.ms": 20,
                "message.timeout.ms": 300_000,
                "retries": 1_000_000,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            if self.produced - len(self.acknowledged) > 5_000:
                self._producer.poll(0.01)
                continue
            number = self.produced
            key = number * 7919 % KEYS
            self._producer.produce(
                self.topic,
                b"%d" % number,
                b"%d" % key,
                partition=number % PARTITIONS[self.topic],
                on_delivery=lambda error, message, number=number: self._record(
                    number, error, message
                ),
            )
            self.last_of_key[key] = number
            self.produced += 1
            self._producer.poll(0.002 if number % 20 == 0 else 0)

    def _record(self, number: int, error: object, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
        else:
            self.acknowledged[number] = (self.topic, message.partition(), message.offset())

    def finish(self) -> int:
        """Stop; how many records are still on their way."""
        self._stop.set()
        self._thread.join(WAIT)
        return self._producer.flush(WAIT)


class Reader:
    """Follows everything; remembers what it saw where."""

    def __init__(self, bootstrap: str) -> None:
        self.seen: dict[Place, bytes] = {}
        self.changed: list[str] = []
        self._bootstrap = bootstrap
        self._positions = {(t, p): 0 for t, count in PARTITIONS.items() for p in range(count)}
        self._stop = threading.Event()
        self._go_back = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def go_back(self) -> None:
        """Read the last records again."""
        self._go_back.set()

    def _run(self) -> None:
        consumer = self._consumer()
        while not self._stop.is_set():
            if self._go_back.is_set():
                self._go_back.clear()
                consumer.assign(
                    [
                        TopicPartition(t, p, max(0, at - 300))
                        for (t, p), at in self._positions.items()
                    ]
                )
            for message in consumer.consume(2_000, 0.1):
                if message.error() is None:
                    self._look(message)
        consumer.close()

    def _consumer(self) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "reader",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.queue.backoff.ms": 5,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(t, p, at) for (t, p), at in self._positions.items()])
        return consumer

    def _look(self, message: Message) -> None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        place, value = (topic, partition, offset), message.value()
        before = self.seen.setdefault(place, value)
        if before != value:
            self.changed.append(f"{place} was {before!r} and is {value!r}")
        self._positions[topic, partition] = offset + 1

    def finish(self) -> None:
        self._stop.set()
        self._thread.join(WAIT)

    def everything(self) -> dict[Place, bytes]:
        """All records, read again from the beginning."""
        self._positions = dict.fromkeys(self._positions, 0)
        consumer = self._consumer()
        ends = {
            (t, p): consumer.get_watermark_offsets(TopicPartition(t, p), WAIT)[1]
            for t, p in self._positions
        }
        found: dict[Place, bytes] = {}
        deadline = time.monotonic() + WAIT
        while any(self._positions[key] < end for key, end in ends.items()):
            if time.monotonic() > deadline:
                raise SystemExit("FAILED: nothing more could be read for a minute")
            for message in consumer.consume(10_000, 0.2):
                if message.error() is None:
                    self._look(message)
                    place = (message.topic(), message.partition(), message.offset())
                    found[place] = message.value()
                    deadline = time.monotonic() + WAIT
        consumer.close()
        return found


def problems_of(writers: list[Writer], reader: Reader, stored: dict[Place, bytes]) -> list[str]:
    """Everything that is not as promised."""
    found = list(reader.changed)
    for writer in writers:
        topic = writer.topic
        found += [f"{topic}: a producer gave up: {text}" for text in writer.failed[:3]]
        values = {place: int(v) for place, v in stored.items() if place[0] == topic}
        if topic == "table":
            table: dict[int, int] = {}
            for place in sorted(values):
                table[values[place] * 7919 % KEYS] = values[place]
            found += [
                f"table: key {key} has {table.get(key)} and not {number}"
                for key, number in writer.last_of_key.items()
                if table.get(key) != number
            ]
            continue
        found += [
            f"{topic}: record {number} was acknowledged at {place}, where {values.get(place)} is"
            for number, place in writer.acknowledged.items()
            if values.get(place) != number
        ]
        if topic == "audited":
            if len(set(values.values())) != len(values):
                found.append(f"audited: {len(values) - len(set(values.values()))} records twice")
            for partition in range(PARTITIONS[topic]):
                numbers = [values[place] for place in sorted(values) if place[1] == partition]
                if numbers != sorted(numbers):
                    found.append(f"audited-{partition}: not in order")
    return found


def kill_once(broker: BrokerProcess, writers: list[Writer], chance: random.Random) -> None:
    """Let all of them write for a while, kill it, and start it again; now and then kill it
    starting."""
    wanted = [len(writer.acknowledged) + PROGRESS for writer in writers]
    deadline = time.monotonic() + WAIT
    while any(len(w.acknowledged) < n for w, n in zip(writers, wanted, strict=True)):
        if time.monotonic() > deadline:
            raise SystemExit("FAILED: a producer makes no progress")
        time.sleep(0.005)
    time.sleep(chance.random() * 0.2)
    broker.kill()
    while chance.random() < STARTS_KILLED:
        timer = threading.Timer(0.02 + chance.random() * 0.3, broker.kill)
        timer.start()
        with contextlib.suppress(RuntimeError, ValueError, OSError):
            broker.start()
        timer.join()
        broker.kill()
    broker.start()


def run(kills: int, seed: int, data: Path) -> int:
    chance = random.Random(seed)
    settings = {
        "log.segment.bytes": "200000",
        "log.cleaner.backoff.ms": "200",
        "log.retention.check.interval.ms": "200",
        "log.flush.scheduler.interval.ms": "50",
        "group.initial.rebalance.delay.ms": "0",
    }
    began = time.monotonic()
    broker = BrokerProcess(data, settings).start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    table = {"cleanup.policy": "compact", "segment.bytes": "40000", "file.delete.delay.ms": "100"}
    topics = [
        NewTopic(name, count, 1, config=table if name == "table" else {})
        for name, count in PARTITIONS.items()
    ]
    for done in admin.create_topics(topics).values():
        done.result(WAIT)
    writers = [
        Writer(broker.bootstrap, "audited", idempotent=True),
        Writer(broker.bootstrap, "plain", idempotent=False),
        Writer(broker.bootstrap, "table", idempotent=True),
    ]
    reader = Reader(broker.bootstrap)
    for number in range(1, kills + 1):
        kill_once(broker, writers, chance)
        reader.go_back()
        if number % 20 == 0:
            counts = ", ".join(f"{len(w.acknowledged)} {w.topic}" for w in writers)
            print(f"{number} kills, acknowledged {counts}, {time.monotonic() - began:.0f} s")
    left = sum(writer.finish() for writer in writers)
    reader.finish()
    stored = reader.everything()
    found = problems_of(writers, reader, stored)
    if left:
        found.append(f"{left} records were not delivered within a minute")
    broker.stop()
    command = [sys.executable, "-m", "penstock_broker", "check-log", str(data)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    print(checked.stdout.strip().splitlines()[-1] if checked.stdout else checked.stderr)
    if checked.returncode:
        found.append("check-log found something: " + checked.stdout[-2000:] + checked.stderr[-500:])
    cuts = (data / "recovery-report.jsonl").read_text().count('"event": "cut"')
    count = sum(len(writer.acknowledged) for writer in writers)
    print(
        f"{kills} kills in {time.monotonic() - began:.0f} s: {count} records acknowledged, "
        f"{len(stored)} stored, {len(reader.seen)} places seen, {cuts} torn tails cut"
    )
    for text in found[:20]:
        print("FAILED:", text)
    if not found:
        print("nothing acknowledged is lost, nothing twice, no offset had two values")
    return 1 if found else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--keep", type=Path, default=None, help="leave the data directory here")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(2**32)
    print(f"seed {seed} (--seed {seed} repeats the moments of the kills)")
    if arguments.keep is not None:
        return run(arguments.kills, seed, arguments.keep)
    with tempfile.TemporaryDirectory() as folder:
        return run(arguments.kills, seed, Path(folder) / "data")


if __name__ == "__main__":
    sys.exit(main())
