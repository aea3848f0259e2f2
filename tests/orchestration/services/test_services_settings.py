"""One file, one variable each, and errors that name both."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock_platform.settings import Settings, SettingsError


def test_defaults() -> None:
    settings = Settings.load(Path("/somewhere/.penstock"), {})
    assert settings.bootstrap_servers == "127.0.0.1:9092"
    assert settings.s3_endpoint == "http://127.0.0.1:9000"
    assert settings.spark_remote == "sc://127.0.0.1:15002"
    assert settings.dagster_url == "http://127.0.0.1:3000"
    assert settings.warehouse == "s3://penstock/warehouse"


def test_home_comes_from_the_variable(tmp_path: Path) -> None:
    assert Settings.load(env={"PENSTOCK_HOME": str(tmp_path / "h")}).home == tmp_path / "h"


@pytest.mark.parametrize("place", ["penstock.toml", ".penstock/penstock.toml"])
def test_the_file_then_the_variable(tmp_path: Path, place: str) -> None:
    file = tmp_path / place
    file.parent.mkdir(exist_ok=True)
    file.write_text('cluster = "shop"\n[kafka]\nport = 9192\n[kafka.broker]\na = "1"\n')
    home = tmp_path / ".penstock"
    assert Settings.load(home, {}).bootstrap_servers == "127.0.0.1:9192"
    overridden = Settings.load(home, {"PENSTOCK_KAFKA_PORT": "9292", "PENSTOCK_CLUSTER": "other"})
    assert overridden.bootstrap_servers == "127.0.0.1:9292"
    assert overridden.cluster == "other"
    assert overridden.kafka.broker == {"a": "1"}


def test_lists_and_tables_from_variables() -> None:
    settings = Settings.load(
        Path("/h"),
        {
            "PENSTOCK_ALERTS_URLS": "json://a, json://b",
            "PENSTOCK_KAFKA_PROPERTIES": "security.protocol=SSL,ssl.ca.location=/ca=x.pem",
        },
    )
    assert settings.alerts.urls == ("json://a", "json://b")
    assert settings.kafka.properties == {
        "security.protocol": "SSL",
        "ssl.ca.location": "/ca=x.pem",
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[kafka]\nport = 99999\n", ["kafka.port", "99999"]),
        ("[kafka]\nprot = 9092\n", ["kafka.prot"]),
        ("[spark]\ndriver_memory = 'lots'\n", ["spark.driver_memory", "lots"]),
        ("[kafka\n", ["not TOML"]),
        ("surprise = 1\n", ["surprise"]),
    ],
)
def test_errors_name_file_and_key(tmp_path: Path, text: str, words: list[str]) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(text)
    with pytest.raises(SettingsError) as error:
        Settings.load(tmp_path / ".penstock", {})
    assert all(word in str(error.value) for word in [str(file), *words]), error.value


def test_every_setting_has_its_variable() -> None:
    assert {"PENSTOCK_KAFKA_PORT", "PENSTOCK_HOST", "PENSTOCK_HOME"} <= Settings.variables()


def test_all_interfaces_are_reached_by_loopback() -> None:
    settings = Settings.load(Path("/h"), {"PENSTOCK_HOST": "0.0.0.0"})
    assert settings.bootstrap_servers == "127.0.0.1:9092"
