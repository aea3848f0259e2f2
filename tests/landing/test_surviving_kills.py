"""A landing killed at any named point, or its Connect server: the next run gives the same rows.

The file is the last by name: what runs after a killed server runs on a cold one."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import PySparkException

from penstock_platform.archive.store import s3_client
from penstock_platform.connections import Connections
from penstock_platform.lake.spark_connect import SparkConnect, SparkUnavailableError
from penstock_platform.landing.attempt import land_window
from penstock_platform.landing.bronze import LandingError
from penstock_platform.ranges import merge
from penstock_platform.reconciliation.store import BookStore
from penstock_platform.settings import Settings
from penstock_platform.topics.model.declaration import bronze_table, consumer_group
from penstock_platform.windows.model.window import Window
from penstock_services.testing.services import ServiceProcess

pytestmark = [pytest.mark.slow, pytest.mark.services, pytest.mark.xdist_group("lake")]

# A landing in a process of its own that kills itself (-9) at a named step; "files" is while data
# files are being written: as soon as the first is in the store.
CHILD = """
import os, signal, sys, threading
from penstock_platform.topics.model.declaration import bronze_table
from penstock_platform.archive.store import s3_client
from penstock_platform.connections import Connections
from penstock_platform.landing.attempt import land_window
from penstock_platform.settings import Settings
from penstock_platform.windows.store import WindowStore

settings = Settings.model_validate_json(sys.argv[1])
topic, sequence, fatal = sys.argv[2], int(sys.argv[3]), sys.argv[4]
penstock = Connections(settings)
window = WindowStore.of(penstock).get(penstock.kafka.ref(topic), sequence)
prefix = "warehouse/" + bronze_table(topic).removeprefix("lake.").replace(".", "/") + "/data/"
store = s3_client(settings)

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def objects():
    listed = store.list_objects_v2(Bucket=settings.s3.bucket, Prefix=prefix)
    return {o["Key"] for o in listed.get("Contents", ())}

def watch(before):
    while not objects() - before:
        pass
    die()

def at(step):
    if step == fatal:
        die()
    if step == "writing" and fatal == "files":
        threading.Thread(target=watch, args=(objects(),), daemon=True).start()

land_window(penstock, window, at)
"""

SMALL, LARGE = 50, 120_000


@pytest.fixture
def uneven(desk: Callable[..., Any]) -> tuple[Any, Window]:
    """A window whose first data file is done long before its second."""
    topic = desk("uneven", partitions=2)
    topic.send((0, None, b"%d" % i, []) for i in range(SMALL))
    topic.send((1, None, b"%0200d" % i, []) for i in range(LARGE))
    return topic, topic.freeze()


def whole(penstock: Connections, window: Window) -> bool:
    landed = penstock.lake.content(bronze_table(window.topic), window.window_id).coverage
    return landed.ranges() == merge(window.ranges) and landed.rows == window.record_count


def data_files(settings: Settings, window: Window) -> set[str]:
    folder = bronze_table(window.topic).removeprefix("lake.").replace(".", "/")
    listed = s3_client(settings).list_objects_v2(
        Bucket=settings.s3.bucket, Prefix=f"warehouse/{folder}/data/"
    )
    return {found["Key"] for found in listed.get("Contents", ())}


def run_and_die(settings: Settings, window: Window, step: str) -> None:
    command = [sys.executable, "-c", CHILD, settings.model_dump_json(), window.topic]
    done = subprocess.run(
        [*command, str(window.sequence), step],
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == -9, f"not killed at {step}: {done.stderr[-2000:]}"


@pytest.mark.parametrize("step", ["planned", "files", "committed", "receipted"])
def test_killed_at(
    step: str, penstock: Connections, penstock_settings: Settings, uneven: tuple[Any, Window]
) -> None:
    topic, window = uneven
    table = bronze_table(topic.topic)
    run_and_die(penstock_settings, window, step)
    receipts = BookStore.of(penstock).receipts(window.ref, table, window.sequence)
    assert len(receipts) == (1 if step == "receipted" else 0)
    if step in ("committed", "receipted"):
        assert whole(penstock, window)
        group = consumer_group(topic.topic)
        assert penstock.kafka.group_offsets(group, topic.topic) == {}

    landed = land_window(penstock, window)

    assert whole(penstock, window)
    assert landed.result.rows == SMALL + LARGE
    newest = penstock.lake.snapshots_with(table, window.window_id)[0]
    assert newest.snapshot_id == landed.receipt.snapshot_id
    group = consumer_group(topic.topic)
    assert penstock.kafka.group_offsets(group, topic.topic) == {0: SMALL, 1: LARGE}


def test_killed_connect_server(
    penstock: Connections,
    penstock_settings: Settings,
    spark_connect: ServiceProcess,
    uneven: tuple[Any, Window],
) -> None:
    """The server dies while it writes data files; supervised, it comes back; the next run lands."""
    _, window = uneven
    with pytest.raises(SparkUnavailableError, match="penstock status"):
        unreachable = penstock_settings.spark.model_copy(update={"remote": "sc://127.0.0.1:1"})
        SparkConnect(
            penstock_settings.model_copy(update={"spark": unreachable}),
            connect_deadline_seconds=0.5,
        ).session()

    def kill_and_bring_back() -> None:
        before = data_files(penstock_settings, window)
        started.wait(30)
        deadline = time.monotonic() + 120
        while data_files(penstock_settings, window) == before and time.monotonic() < deadline:
            pass
        spark_connect.kill()
        spark_connect.start()

    started = threading.Event()
    killer = threading.Thread(target=kill_and_bring_back)
    killer.start()
    with pytest.raises((PySparkException, LandingError)):
        land_window(penstock, window, lambda step: started.set() if step == "writing" else None)
    killer.join(90)
    assert penstock.lake.row_count(bronze_table(window.topic)) == 0

    landed = land_window(penstock, window)

    assert whole(penstock, window)
    assert landed.result.rows == SMALL + LARGE
