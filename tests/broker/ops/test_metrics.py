"""Counting, and the text that a scrape gets: as Prometheus' own parser reads it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from penstock_broker.errors import ErrorCode
from penstock_broker.metrics import (
    CHILDREN_MAX,
    OTHER,
    SECONDS_BUCKETS,
    Block,
    Counter,
    Histogram,
    Metrics,
)
from penstock_broker.server.request_metrics import RequestClock, RequestMetrics
from penstock_broker.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scrape(metrics: Metrics, lines_at_once: int = 500) -> Samples:
    """What Prometheus' parser makes of the text."""
    text = b"".join(metrics.render(lines_at_once)).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_what_is_counted_is_read() -> None:
    metrics = Metrics()
    metrics.requests.labels("Fetch", "12").inc()
    metrics.requests.labels("Fetch", "12").inc(4)
    metrics.recovery_cuts.inc()
    level = metrics.gauge("level", "A level.")
    level.set(2.5)
    level.dec()
    metrics.topic("orders").messages_in += 7
    found = scrape(metrics)
    requests = "kafka_network_requestmetrics_requests_total"
    assert found[requests, (("request", "Fetch"), ("version", "12"))] == 5
    assert found["penstock_log_recovery_cuts_total", ()] == 1
    assert found["level", ()] == 1.5
    name = "kafka_server_brokertopicmetrics_messagesin_total"
    assert found[name, (("topic", "orders"),)] == 7


@given(st.lists(st.floats(min_value=0, max_value=20), max_size=50))
def test_histograms_count_each_observation_at_or_below_its_bounds(values: list[float]) -> None:
    metrics = Metrics()
    histogram = metrics.histogram("seconds", "Time.")
    for value in values:
        histogram.observe(value)
    found = scrape(metrics)
    for bound in SECONDS_BUCKETS:
        text = next(k for k in found if k[0] == "seconds_bucket" and float(k[1][0][1]) == bound)
        assert found[text] == sum(value <= bound for value in values)
    assert found["seconds_bucket", (("le", "+Inf"),)] == len(values)
    assert found["seconds_count", ()] == len(values) == histogram.count
    assert found["seconds_sum", ()] == pytest.approx(sum(values))


def test_many_observations_of_one_value_are_as_many_of_it() -> None:
    once, many = Histogram(), Histogram()
    for _ in range(9):
        once.observe(0.003)
    many.observe_many(0.003, 9)
    assert list(once.rows(()))[:-2] == list(many.rows(()))[:-2]
    assert once.total == pytest.approx(many.total)


@given(st.text(), st.floats(allow_nan=True, allow_infinity=True))
def test_any_label_and_any_number_is_read_as_it_was(label: str, value: float) -> None:
    metrics = Metrics()
    family = metrics.gauges("it", 'Help with \\ and "quotes"\nand lines.', "name")
    family.labels(label).set(value)
    found = scrape(metrics)
    readable = label.encode("utf-8", "replace").decode()
    seen = found["it", (("name", readable),)]
    assert seen == value or (math.isnan(value) and math.isnan(seen))


def test_labels_are_bounded_and_what_is_beyond_is_counted_together() -> None:
    metrics = Metrics()
    family = metrics.counters("it", "Help.", "name")
    for number in range(CHILDREN_MAX + 50):
        family.labels(str(number)).inc()
        metrics.topic(str(number)).bytes_in += 1
    found = scrape(metrics)
    assert sum(key[0] == "it_total" for key in found) == CHILDREN_MAX + 1
    assert found["it_total", (("name", OTHER),)] == 50
    assert found["kafka_server_brokertopicmetrics_bytesin_total", (("topic", OTHER),)] == 50


def test_a_wrong_number_of_labels_is_a_mistake() -> None:
    family = Metrics().counters("it", "Help.", "one", "two")
    with pytest.raises(ValueError, match="it has the labels"):
        family.labels("only")


def test_counters_of_a_deleted_topic_are_gone() -> None:
    metrics = Metrics()
    metrics.topic("gone").bytes_in += 1
    metrics.remove_topic("gone")
    assert not [key for key in scrape(metrics) if ("topic", "gone") in key[1]]


def test_the_text_comes_in_pieces_that_make_the_same_whole() -> None:
    metrics = Metrics()
    for number in range(300):
        metrics.topic(str(number)).bytes_in += number
    pieces = list(metrics.render(50))
    assert len(pieces) > 10
    assert b"".join(pieces) == b"".join(metrics.render(10**9))


def test_collectors_are_asked_at_every_scrape() -> None:
    metrics = Metrics()
    counted = Counter()

    def collect() -> list[Block]:
        counted.inc()
        return [Block("asked", "gauge", "How often.", counted.rows(()))]

    metrics.collect_from(lambda: iter(collect()))
    assert scrape(metrics)["asked", ()] == 1
    assert scrape(metrics)["asked", ()] == 2


def test_errors_are_counted_wherever_they_are_in_an_answer() -> None:
    metrics = Metrics()
    counting = RequestMetrics(metrics, "Metadata", 9)
    offline = MetadataResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=0,
        leader_id=-1,
        replica_nodes=[],
        isr_nodes=[],
    )
    fine = MetadataResponsePartition(
        error_code=0, partition_index=1, leader_id=0, replica_nodes=[0], isr_nodes=[0]
    )
    unknown = MetadataResponseTopic(
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name="x", partitions=[]
    )
    known = MetadataResponseTopic(error_code=0, name="y", partitions=[offline, fine, offline])
    counting.count_errors(
        MetadataResponse(
            brokers=[], cluster_id="c", controller_id=0, topics=[unknown, known, unknown]
        )
    )
    found = scrape(metrics)
    errors = "kafka_network_requestmetrics_errors_total"
    labels = {key[1]: value for key, value in found.items() if key[0] == errors}
    assert labels == {
        (("error", "LEADER_NOT_AVAILABLE"), ("request", "Metadata")): 2,
        (("error", "UNKNOWN_TOPIC_OR_PARTITION"), ("request", "Metadata")): 2,
    }


def test_requests_are_counted_in_runs_of_a_kind() -> None:
    metrics = Metrics()
    clock = RequestClock()
    produce, fetch = (RequestMetrics(metrics, name, 9) for name in ("Produce", "Fetch"))
    for kind in (produce, produce, fetch, produce):
        clock.begin(kind)
    clock.rest()
    clock.rest()
    found = scrape(metrics)
    requests = "kafka_network_requestmetrics_requests_total"
    assert found[requests, (("request", "Produce"), ("version", "9"))] == 3
    assert found[requests, (("request", "Fetch"), ("version", "9"))] == 1
    seconds = "kafka_network_requestmetrics_localtime_seconds_count"
    assert found[seconds, (("request", "Produce"),)] == 3
