"""What needs no service: translated Kafka properties, Spark's configuration, plans of a read."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_platform.kafka.java_client import java_properties
from penstock_platform.lake.model.digests import digest_of_halves
from penstock_platform.lake.spark_connect import spark_tag
from penstock_platform.lake.spark_session import properties_text, spark_conf
from penstock_platform.lake.tables import Lake, LakeError, MissingTableError
from penstock_platform.landing.attempt import operation_tag
from penstock_platform.landing.bronze import files_of, remaining_ranges
from penstock_platform.ranges import OffsetRange, count, merge, subtract
from penstock_platform.reconciliation.spark_stored import in_batches
from penstock_platform.settings import (
    KafkaSettings,
    LakeSettings,
    S3Settings,
    Settings,
    SettingsError,
)
from penstock_platform.windows.model.window import Window, WindowPartition

RANGES = st.lists(
    st.builds(
        lambda p, start, size: OffsetRange(p, start, start + size),
        st.integers(0, 3),
        st.integers(0, 60),
        st.integers(0, 40),
    ),
    max_size=6,
)


def settings(tmp_path: Path, **sections: object) -> Settings:
    return Settings(home=tmp_path, **sections)  # type: ignore[arg-type]


def window_of(*ranges: tuple[int, int]) -> Window:
    return Window(
        cluster_id="c",
        topic="t",
        topic_id="id",
        sequence=7,
        window="2026-11-20-00:00",
        opened_at="2026-11-20T00:00:00Z",
        closed_at="2026-11-20T00:01:00Z",
        frozen_at="2026-11-20T00:01:00Z",
        partitions=tuple(
            WindowPartition(p, start, end, 0, end, 0) for p, (start, end) in enumerate(ranges)
        ),
        previous=None,
        code_version="test",
    )


def test_scram_over_tls_becomes_the_java_clients_own_words() -> None:
    given_properties = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "pen",
        "sasl.password": 'st"o\\ck',
        "ssl.ca.location": "ca.pem",
        "ssl.certificate.pem": "CERT",
        "ssl.key.location": "key.pem",
        "ssl.key.password": "secret",
        "queue.buffering.max.ms": "5",
    }
    assert java_properties(given_properties, lambda path: f"<{path}>") == {
        "security.protocol": "SASL_SSL",
        "ssl.key.password": "secret",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="pen" password="st\\"o\\\\ck";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "<ca.pem>",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "CERT",
        "ssl.keystore.key": "<key.pem>",
    }
    assert java_properties({}) == {}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sasl.mechanism", "OAUTHBEARER"),
        ("ssl.keystore.location", "store.p12"),
        ("enable.ssl.certificate.verification", "false"),
        ("sasl.kerberos.principal", "x"),
        ("ssl.certificate.pem", "only the certificate"),
        ("ssl.ca.location", "no/such/file.pem"),
    ],
)
def test_what_secures_a_connection_is_never_dropped(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=r"^kafka\.properties: "):
        java_properties({name: value})


def test_a_refusal_shows_no_password() -> None:
    with pytest.raises(SettingsError) as refused:
        java_properties({"ssl.keystore.password": "hunter2"})
    assert "hunter2" not in str(refused.value)


def test_spark_is_bound_to_loopback_and_strict(tmp_path: Path) -> None:
    conf = spark_conf(settings(tmp_path, s3=S3Settings(port=9123)))
    assert conf["spark.connect.grpc.binding.address"] == "127.0.0.1"
    assert conf["spark.driver.bindAddress"] == "127.0.0.1"
    assert conf["spark.sql.ansi.enabled"] == "true"
    assert conf["spark.sql.session.timeZone"] == "UTC"
    assert conf["spark.sql.catalog.lake"] == "org.apache.iceberg.spark.SparkCatalog"
    assert conf["spark.sql.catalog.lake.s3.endpoint"] == "http://127.0.0.1:9123"
    assert conf["spark.sql.catalog.lake.uri"].startswith(f"jdbc:sqlite:{tmp_path}")
    own = spark_conf(settings(tmp_path, s3=S3Settings(access_key="")))
    assert "spark.sql.catalog.lake.s3.secret-access-key" not in own


def test_the_catalog_is_sqlite_or_a_clear_no(tmp_path: Path) -> None:
    moved = settings(tmp_path, lake=LakeSettings(catalog_uri="sqlite:////data/lake.db"))
    assert "jdbc:sqlite:/data/lake.db?" in spark_conf(moved)["spark.sql.catalog.lake.uri"]
    other = settings(tmp_path, lake=LakeSettings(catalog_uri="postgresql://u:pw@db/lake"))
    with pytest.raises(SettingsError, match=r"lake\.catalog_uri.*postgresql") as refused:
        spark_conf(other)
    assert "pw" not in str(refused.value)


def test_properties_text_survives_backslashes() -> None:
    assert properties_text({"b": "x\\y", "a": "1"}) == "a 1\nb x\\\\y\n"


def test_a_lake_without_catalog_holds_nothing(tmp_path: Path) -> None:
    lake = Lake(settings(tmp_path, kafka=KafkaSettings()))
    table = "lake.bronze.nothing"
    assert lake.content(table, "w").count == 0
    assert (lake.row_count(table), lake.exists(table), lake.window_ids(table)) == (0, False, [])
    assert lake.current_snapshot(table) is None
    assert lake.snapshots_with(table, "w") == []
    assert lake.snapshot_of_attempt(table, "a") is None
    assert list(lake.values(table, "w")) == []
    with pytest.raises(MissingTableError, match="nothing was landed"):
        lake.location(table)
    with pytest.raises(LakeError, match="is not a table of the catalog"):
        lake.exists("other.bronze.nothing")


def test_small_windows_become_few_files_and_large_ones_are_not_held_back() -> None:
    assert files_of(0, 0) == 1
    assert files_of(10_000, 1) == 1
    assert files_of(10_000, 6) == 2
    assert files_of(900_000, 6) == 4
    assert files_of(2_000_000, 6) >= 6


def test_remaining_ranges_keep_every_partition_and_start_where_the_log_does() -> None:
    window = window_of((0, 100), (50, 60), (7, 7))
    gone = (OffsetRange(0, 0, 40), OffsetRange(1, 50, 60))
    assert remaining_ranges(window, gone) == (
        OffsetRange(0, 40, 100),
        OffsetRange(1, 60, 60),
        OffsetRange(2, 7, 7),
    )
    assert remaining_ranges(window, ()) == window.ranges
    cut = (OffsetRange(0, 0, 10), OffsetRange(0, 60, 100), OffsetRange(1, 55, 60))
    assert remaining_ranges(window, cut) == (
        OffsetRange(0, 10, 60),
        OffsetRange(1, 50, 55),
        OffsetRange(2, 7, 7),
    )
    with pytest.raises(ValueError, match="in 2 pieces"):
        remaining_ranges(window, (OffsetRange(0, 40, 60),))


@given(ranges=RANGES, size=st.integers(1, 50))
def test_batches_cover_the_ranges_once_and_stay_small(ranges: list[OffsetRange], size: int) -> None:
    wanted = merge(ranges)
    batches = list(in_batches(wanted, size))
    assert all(0 < sum(len(r) for r in batch) <= size for batch in batches)
    together = [r for batch in batches for r in batch]
    assert merge(together) == wanted
    assert sum(len(r) for r in together) == count(wanted)
    assert not subtract(together, wanted)


@given(low=st.integers(0, 2**60), high=st.integers(0, 2**60))
def test_halves_of_a_digest_add_up_modulo_two_to_the_64(low: int, high: int) -> None:
    assert int(digest_of_halves(low, high), 16) == (low + (high << 32)) % 2**64


def test_tags_are_what_spark_takes() -> None:
    tag = spark_tag(operation_tag(window_of((0, 1)), "bronze"))
    assert tag == "penstock/bronze/id/7"
    assert spark_tag("a,b") == "a_b"
    assert spark_tag("") == "_"
