"""Writes docs/METRICS.md from a broker's own blocks:

.venv/bin/python tests/broker/ops/metrics_page.py > docs/METRICS.md
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from penstock_broker.metrics import Metrics
from penstock_broker.testing import ThreadBroker

HEAD = """\
# Metrics

What `/metrics` shows (setting `penstock.http.listener`, or `serve --http HOST:PORT`). Names are
those that the usual exporters give Apache Kafka's and kafka_exporter's metrics where there is such
a metric; the others begin with `penstock_`. Times are in seconds. Everything counts from the start
of the process. docs/operations/BROKER.md has scrape configuration, alert rules and a dashboard.

Labels are bounded: counters are kept by name for the first 1,000 topics; 10,000 partitions and
20,000 committed offsets have rows of their own (`penstock_metrics_rows_left_out` says how many
partitions have none).

| name | kind | labels | what |
|---|---|---|---|
"""


def page(metrics: Metrics) -> str:
    """The page for what these metrics hold."""
    lines = []
    for block in metrics.blocks():
        shown = ", ".join(f"`{name}`" for name in block.labels)
        lines.append(f"| `{block.name}` | {block.kind} | {shown} | {block.help} |\n")
    return HEAD + "".join(sorted(lines))


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        ThreadBroker(Path(folder) / "data") as broker,
    ):
        sys.stdout.write(page(broker.broker.metrics))


if __name__ == "__main__":
    main()
