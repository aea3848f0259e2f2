"""Topic declarations: what they mean, and errors that say what, where and how to fix it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from penstock_platform.topics.model.declaration import (
    TopicError,
    TopicSpec,
    books_key,
    bronze_key,
    bronze_table,
    consumer_group,
    format_duration,
    load_topic,
    mart_table,
    parse_duration,
    quarantine_key,
    quarantine_table,
    refuse_collisions,
    retention_key,
    silver_key,
    silver_table,
    topic_key,
)

WHOLE = """\
metadata: {name: shop.orders, labels: {domain: shop}}
spec: {partitions: 6, replicas: 3, configs: {min.insync.replicas: 2, segment.bytes: 1048576}}
retention: {keep: 7d, max_bytes: 1000000}
schema: {format: json, file: orders.schema.json}
owners: ["team:shop", "data@example.com"]
description: Orders.
deletion_policy: retain
land: {window: minutely, max_records: 1000}
audit: {grace: 1h 30m, severity: WARN, accept_unaudited: true}
freshness: {fail_after: 2h, warn_after: 90m}
"""


def test_a_whole_declaration_is_read():
    spec = load_topic(WHOLE, "orders.yaml")
    assert spec.name == "shop.orders"
    assert spec.land is not None and spec.land.cron == "* * * * *"
    assert spec.retention.keep == timedelta(days=7)
    assert spec.audit.grace == timedelta(minutes=90)
    assert spec.contract is not None and spec.contract.file == "orders.schema.json"
    assert spec.spec.configs == {"min.insync.replicas": "2", "segment.bytes": "1048576"}
    assert TopicSpec.model_validate(spec.model_dump(mode="json", by_alias=True)) == spec


def test_only_a_name_is_required():
    spec = load_topic("metadata: {name: a}")
    assert spec.land is None
    assert spec.retention.keep is None
    assert spec.spec.partitions == 1


def test_landed_topics_have_the_brokers_deletion_off():
    assert load_topic(WHOLE).broker_configs["retention.ms"] == "-1"
    kept = load_topic("metadata: {name: a}\nretention: {keep: 2m, max_bytes: 10}").broker_configs
    assert kept == {"retention.ms": "120000", "retention.bytes": "10"}
    assert load_topic("metadata: {name: a}").broker_configs["retention.ms"] == "-1"


@pytest.mark.parametrize(
    "text,line,words",
    [
        ("metadata: {}", 1, ["metadata.name is missing", "add it"]),
        ("metadata: {name: 'a b'}", 1, ["metadata.name", "1 to 249", "'a b'"]),
        ("metadata: {name: a}\nspec:\n  partition: 3", 3, ["did you mean partitions?"]),
        ("metadata: {name: a}\nzzz: 3", 2, ["zzz is not a key here", "known are metadata"]),
        ("metadata: {name: a}\nspec: {partitions: 0}", 2, ["spec.partitions", "(found 0)"]),
        (
            "metadata: {name: a}\nspec:\n  configs: {retention.ms: 5}",
            3,
            ["declare retention: {keep, max_bytes} instead"],
        ),
        ("metadata: {name: a}\nspec:\n  configs: {segmnt.ms: 5}", 3, ["did you mean segment.ms"]),
        ("metadata: {name: a}\nspec: {configs: {segment.ms: x}}", 2, ["a whole number", "'x'"]),
        ("metadata: {name: a}\nspec: {configs: {cleanup.policy: x}}", 2, ["is one of delete"]),
        ("metadata: {name: a}\nretention: {keep: 7}", 2, ["90s, 15m, 2h, 7d", "(found 7)"]),
        (
            "metadata: {name: a}\nland: {}\nretention:\n  hold_for: billing",
            4,
            ["retention.hold_for", "write a list of consumer groups: [billing]"],
        ),
        (
            "metadata: {name: a}\nland: {}\nretention: {hold_for: ['']}",
            3,
            ["retention.hold_for", "is not empty"],
        ),
        (
            "metadata: {name: a}\nretention: {hold_for: [billing]}",
            1,
            ["retention.hold_for needs land", "add land: {}"],
        ),
        ("metadata: {name: a}\nland: {window: often}", 2, ["minutely, hourly, daily"]),
        ("metadata: {name: a}\nowners: [me]", 2, ["team:name"]),
        (
            "metadata: {name: a}\ndeletion_policy: delete",
            2,
            ["deletion_policy: retain is the only policy", "kafka-topics --delete", "'delete'"],
        ),
        ("metadata: {name: a}\nschema: {file: x}", 1, ["schema needs land"]),
        ("metadata: {name: a}\naudit: {severity: LOUD}", 2, ["audit.severity", "WARN"]),
        (
            "metadata: {name: a}\nfreshness: {fail_after: 1h, warn_after: 2h}",
            2,
            ["shorter than fail_after"],
        ),
    ],
)
def test_errors_name_file_line_key_and_remedy(text, line, words):
    with pytest.raises(TopicError) as caught:
        load_topic(text, "topics/a.yaml")
    message = str(caught.value)
    assert message.startswith(f"topics/a.yaml:{line}: ")
    for word in words:
        assert word in message


def test_all_problems_are_reported_at_once_and_inside_a_component():
    text = (
        "type: x.TopicComponent\nattributes:\n  metadata: {name: a}\n"
        "  spec:\n    partitions: x\n  owners: [y]"
    )
    with pytest.raises(TopicError) as caught:
        load_topic(text, "defs.yaml")
    assert [message.split(": ")[0] for message in str(caught.value).splitlines()] == [
        "defs.yaml:5",
        "defs.yaml:6",
    ]


@pytest.mark.parametrize("text", ["", "7", "a: [", "- 3"])
def test_what_is_no_declaration_is_refused(text):
    with pytest.raises(TopicError, match=r"x\.yaml"):
        load_topic(text, "x.yaml")


def test_names_that_follow_from_a_topic():
    assert bronze_table("Shop.Orders-v2") == "lake.bronze.shop_orders_v2"
    assert silver_table("__penstock_audit") == "lake.silver.penstock_audit"
    assert quarantine_table("a") == "lake.quarantine.a"
    assert mart_table("delays") == "lake.marts.delays"
    assert consumer_group("shop.orders") == "penstock.bronze.shop_orders"
    assert topic_key("local", "shop.orders") == ["local", "topic", "shop.orders"]
    assert bronze_key("shop.orders") == ["lake", "bronze", "shop_orders"]
    assert silver_key("a") == ["lake", "silver", "a"]
    assert quarantine_key("a") == ["lake", "quarantine", "a"]
    assert books_key("shop.orders") == ["books", "shop.orders"]
    assert retention_key("shop.orders") == ["retention", "shop.orders"]


def test_topics_that_would_share_a_table_are_refused():
    a, b = (load_topic(f"metadata: {{name: {name}}}\nland: {{}}") for name in ("a.b", "a_b"))
    refuse_collisions([(a, "a.yaml:2")])
    with pytest.raises(TopicError, match=r"both land in lake\.bronze\.a_b") as error:
        refuse_collisions([(a, "a.yaml:2"), (b, "b.yaml:2")])
    assert "a.yaml:2" in str(error.value)
    assert "b.yaml:2" in str(error.value)


def test_a_topic_declared_twice_is_refused_with_both_places():
    a = load_topic("metadata: {name: a}")
    with pytest.raises(TopicError) as error:
        refuse_collisions([(a, "a.yaml:2"), (a, "b.yaml:9"), (a, "c.yaml:4")])
    assert str(error.value).splitlines() == [
        "b.yaml:9: topic a is declared twice, first at a.yaml:2; keep one declaration",
        "c.yaml:4: topic a is declared twice, first at a.yaml:2; keep one declaration",
    ]


@pytest.mark.parametrize("text", ["250ms", "90s", "15m", "36h", "7d"])
def test_durations_are_read_back(text):
    assert format_duration(parse_duration(text)) == text


def test_a_share_of_the_quarantine_needs_a_contract_and_is_a_share():
    spec = load_topic(WHOLE + "quarantine: {max_share: 0.05}\n", "orders.yaml")
    assert spec.quarantine.max_share == 0.05
    assert load_topic(WHOLE).quarantine.max_share is None
    with pytest.raises(TopicError, match=r"orders.yaml:11: quarantine.max_share: .*1"):
        load_topic(WHOLE + "quarantine: {max_share: 5}\n", "orders.yaml")
    with pytest.raises(TopicError, match="quarantine needs schema"):
        load_topic("metadata: {name: a}\nland: {}\nquarantine: {max_share: 0.05}\n")
