"""How long a start takes with much stored: after a clean stop, and after a kill.

    python benchmarks/broker/bench_restart.py [--gigabytes 20] [--partitions 20] [--batch 10000]

The directory is filled by the broker's own storage layer, in this process, which syncs what the
broker would sync meanwhile, and ends like a killed one: just before it would sync again.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from penstock_broker.clock import SystemClock
from penstock_broker.cluster.metadata_store import LocalMetadataStore
from penstock_broker.config import BrokerConfig
from penstock_broker.log.files import OsFiles
from penstock_broker.log.manager import LogManager
from penstock_broker.replication.replica_manager import ReplicaManager
from penstock_broker.server.log_jobs import CHECKPOINTS_AT_MOST
from penstock_broker.testing.broker_process import BrokerProcess
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.records import RecordBatch

LOOK_BYTES = 256 << 20
"""Written between two looks of the broker at what it has to sync: 3 s of 85 MB/s."""


def flush(logs: LogManager) -> None:
    """As the broker does in the background (``server/log_jobs.py``)."""
    for log in logs.far_behind(CHECKPOINTS_AT_MOST):
        job = log.flush_job(with_checkpoint=True)
        if job is not None:
            job.run()
            log.flushed(job)


def fill(data: Path, size: int, partitions: int, batch_bytes: int) -> int:
    """Write ``size`` bytes and stop as a killed process does; how many batches."""
    clock, files, config = SystemClock(), OsFiles(), BrokerConfig()
    logs = LogManager(data, clock, files)
    logs.open()
    metadata = LocalMetadataStore(data / "metadata.json", files, clock, 0)
    replicas = ReplicaManager(config, metadata, logs)
    replicas.start()
    replicas.create_topic("t", partitions, {})
    records = [NewRecord(None, b"x" * 200, clock.now_ms())] * max(1, batch_bytes // 210)
    batch = RecordBatch(memoryview(build_batch(records)))
    count = size // batch.size_bytes
    targets = [replicas.partition("t", index).log for index in range(partitions)]
    looks = max(1, LOOK_BYTES // batch.size_bytes)
    for number in range(count):
        log = targets[number % partitions]
        log.append([batch], 0)
        if number % looks == looks - 1:
            flush(logs)
    for log in targets:
        for segment in log.segments[:-1]:
            segment.sync()
        # As after the flush of closed segments.
        log.recovery_point = max(log.recovery_point, log.segments[-1].base_offset)
    logs.checkpoint_recovery_points()
    logs.abandon()
    return count


def started(data: Path) -> float:
    broker = BrokerProcess(data)
    began = time.monotonic()
    broker.start()
    took = time.monotonic() - began
    broker.stop()
    return took


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--gigabytes", type=float, default=20)
    parser.add_argument("--partitions", type=int, default=20)
    parser.add_argument("--batch", type=int, default=10_000, help="bytes in a batch")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        size = int(arguments.gigabytes * (1 << 30))
        count = fill(data, size, arguments.partitions, arguments.batch)
        print(f"{arguments.gigabytes} GB in {arguments.partitions} partitions, {count} batches")
        print(f"start after a kill: {started(data):.2f} s")
        print((data / "recovery-report.jsonl").read_text().strip().splitlines()[-1])
        print(f"start after a clean stop: {started(data):.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
