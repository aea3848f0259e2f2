"""The brokers that are measured: ours, a Kafka that is started here, one that runs already."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from confluent_kafka.admin import AdminClient, NewTopic

KAFKA_VERSION = "4.3.1"
KAFKA_POM = f"""\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>bench</groupId><artifactId>kafka</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
      <version>{KAFKA_VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""
KAFKA_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
"""
START_SECONDS_MAX = 90


@dataclass
class Target:
    """A broker, and what was measured of it: lists by workload, one figure a round."""

    name: str
    bootstrap: str
    process: psutil.Process | None
    rates: dict[str, list[float]] = field(default_factory=dict)
    cpu: dict[str, list[float]] = field(default_factory=dict)
    facts: dict[str, float] = field(default_factory=dict)

    def cpu_seconds(self) -> float:
        if self.process is None:
            return 0.0
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def resident_mb(self) -> float:
        return 0.0 if self.process is None else self.process.memory_info().rss / 2**20

    @contextlib.contextmanager
    def measured(self, workload: str, records: int) -> Iterator[list[float]]:
        """Note the rate of what is done inside, and the broker's CPU seconds per million. A
        generator that is a process knows better how long it took: its seconds go into the list."""
        cpu, began = self.cpu_seconds(), time.perf_counter()
        known: list[float] = []
        yield known
        seconds = sum(known) or time.perf_counter() - began
        self.rates.setdefault(workload, []).append(records / seconds)
        spent = (self.cpu_seconds() - cpu) / records * 1e6
        self.cpu.setdefault(workload, []).append(spent)

    def create_topic(self, partitions: int = 1) -> str:
        name = f"bench-{uuid.uuid4().hex[:8]}"
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        for future in admin.create_topics([NewTopic(name, partitions, 1)]).values():
            future.result(60)
        return name

    def delete_topic(self, name: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        for future in admin.delete_topics([name]).values():
            future.result(60)


@contextlib.contextmanager
def penstock(directory: Path, port: int = 0) -> Iterator[Target]:
    """Our broker, as it is installed, on a data directory."""
    command = [sys.executable, "-m", "penstock_broker", "serve", "--data-dir", str(directory)]
    with (directory.with_suffix(".log")).open("ab") as log:
        process = subprocess.Popen(
            [*command, "--port", str(port)], stdout=subprocess.PIPE, stderr=log
        )
    try:
        line = process.stdout.readline().decode() if process.stdout else ""
        found = re.search(r"ready on (\S+:\d+)", line)
        if found is None:
            raise SystemExit(f"our broker did not start: {directory.with_suffix('.log')}")
        yield Target("Penstock", found.group(1), psutil.Process(process.pid))
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def kafka_jars() -> Path | None:
    """Apache Kafka's jars, by Maven, kept for the next time; None without Java and Maven."""
    if not (shutil.which("java") and shutil.which("mvn")):
        return None
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    directory = home / "penstock-bench" / f"kafka-{KAFKA_VERSION}"
    if not (directory / "complete").exists():
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "pom.xml").write_text(KAFKA_POM)
        print(f"asking Maven for Apache Kafka {KAFKA_VERSION}")
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=libs"]
        if subprocess.run(command, cwd=directory, check=False).returncode:
            print("Maven could not get it: our broker alone")
            return None
        (directory / "complete").touch()
    return directory / "libs"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextlib.contextmanager
def kafka(jars: Path, directory: Path) -> Iterator[Target]:
    """Apache Kafka, KRaft, 1 GiB of heap, its own settings otherwise."""
    directory.mkdir(parents=True)
    port = free_port()
    settings = KAFKA_PROPERTIES.format(port=port, controller=free_port(), data=directory / "data")
    properties = directory / "server.properties"
    properties.write_text(settings)
    java = ["java", "-Xms1g", "-Xmx1g", "-cp", f"{jars}/*"]
    with (directory / "out.log").open("wb") as out:
        tool = [*java, "kafka.tools.StorageTool", "format", "-t", "5L6g3nShT-eMCtK--X86sw", "-c"]
        subprocess.run([*tool, str(properties)], stdout=out, stderr=out, check=True)
        process = subprocess.Popen([*java, "kafka.Kafka", str(properties)], stdout=out, stderr=out)
    try:
        await_port(port)
        yield Target(f"Kafka {KAFKA_VERSION}", f"127.0.0.1:{port}", psutil.Process(process.pid))
    finally:
        process.terminate()
        process.wait(60)


def await_port(port: int) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise SystemExit(f"nothing listens on {port}")


def running(bootstrap: str, name: str) -> Target:
    """One that runs already; its process, where it is on this machine and may be looked at."""
    return Target(name, bootstrap, listener_of(bootstrap))


def listener_of(bootstrap: str) -> psutil.Process | None:
    port = int(bootstrap.rpartition(":")[2])
    try:
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port:
                return psutil.Process(connection.pid) if connection.pid else None
    except (psutil.AccessDenied, psutil.NoSuchProcess):
        return None
    return None


def scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="penstock-bench-")
