"""What it costs the broker to count one produce request, in microseconds.

python benchmarks/broker/bench_metrics.py
"""

from __future__ import annotations

import timeit

from penstock_broker.metrics import Metrics
from penstock_broker.server.request_metrics import RequestClock, RequestMetrics

REQUESTS = 20_000


def main() -> None:
    metrics = Metrics()
    clock, kind, topic = RequestClock(), RequestMetrics(metrics, "Produce", 9), metrics.topic("t")

    def one_request() -> None:
        clock.begin(kind)
        topic.messages_in += 1
        topic.bytes_in += 200

    seconds = min(timeit.repeat(one_request, number=REQUESTS, repeat=5)) / REQUESTS
    print(f"counting a produce request: {seconds * 1e6:.2f} µs")


if __name__ == "__main__":
    main()
