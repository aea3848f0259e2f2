"""One file, one variable each, and errors that name both."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock_platform.settings import Settings, SettingsError
from penstock_platform.toml_lines import toml_lines


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


def problems(tmp_path: Path, text: str = "", env: dict[str, str] | None = None) -> list[str]:
    (tmp_path / "penstock.toml").write_text(text)
    with pytest.raises(SettingsError) as error:
        Settings.load(tmp_path / ".penstock", env or {})
    return str(error.value).splitlines()


def test_all_problems_of_the_file_at_once_with_line_and_remedy(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    text = """\
clustr = "shop"

[kafka]
prot = 1
port = 99999

[spark]
driver_memory = "lots"
[kafak]
port = 2
"""
    found = problems(tmp_path, text)
    assert [line.split(": ")[0] for line in found] == [f"{file}:{n}" for n in (1, 4, 5, 8, 9)]
    for line, words in zip(
        found, ["mean cluster?", "mean port?", "99999", "driver_memory", "mean kafka?"], strict=True
    ):
        assert words in line


def test_what_is_not_toml_has_its_line(tmp_path: Path) -> None:
    (line,) = problems(tmp_path, "[kafka]\nport = \n")
    assert line.startswith(f"{tmp_path}/penstock.toml:2: not TOML: ")


def test_a_bad_variable_is_named_as_the_variable(tmp_path: Path) -> None:
    (line,) = problems(tmp_path, "[kafka]\nport = 9092\n", {"PENSTOCK_KAFKA_PORT": "many"})
    assert line.startswith("PENSTOCK_KAFKA_PORT: kafka.port: ")


def test_no_secret_is_shown(tmp_path: Path) -> None:
    secret = "hunter2"
    texts = [
        f'[s3]\nsecret_key = ["{secret}"]\n',
        f'[kafka.properties]\n"sasl.password" = ["{secret}"]\n',
        f'[kafka]\nproperties = "sasl.password={secret}"\n',
        f'[alerts]\nwebhook = ["https://x/{secret}"]\n',
    ]
    for text in texts:
        assert secret not in "".join(problems(tmp_path, text)), text
    variables = [
        f"sasl.password={secret}",
        f"sasl.username=u,{secret}",
        f"sasl.password=se,{secret}",
    ]
    for value in variables:
        said = "".join(problems(tmp_path, "", {"PENSTOCK_KAFKA_PROPERTIES": value}))
        assert secret not in said
        assert "PENSTOCK_KAFKA_PROPERTIES__SASL_PASSWORD" in said
    here = Settings.load(
        tmp_path / "h",
        {"PENSTOCK_KAFKA_PROPERTIES__SASL_PASSWORD": secret, "PENSTOCK_S3_SECRET_KEY": secret},
    )
    assert here.s3.secret_key == secret
    assert secret not in repr(here)


def test_secrets_come_one_variable_each_or_from_a_file_and_tables_merge(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text(
        '[kafka.properties]\n"security.protocol" = "SASL_SSL"\n"sasl.password" = "old"\n'
    )
    (tmp_path / "key").write_text("s3,cr=t\n")
    here = Settings.load(
        tmp_path / ".penstock",
        {
            "PENSTOCK_KAFKA_PROPERTIES": "sasl.mechanism=PLAIN",
            "PENSTOCK_KAFKA_PROPERTIES__SASL_PASSWORD": "se,cr=et",
            "PENSTOCK_KAFKA_BROKER__LOG_RETENTION_MS": "5",
            "PENSTOCK_S3_SECRET_KEY_FILE": str(tmp_path / "key"),
        },
    )
    assert here.kafka.properties == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.password": "se,cr=et",
    }
    assert here.kafka.broker == {"log.retention.ms": "5"}
    assert here.s3.secret_key == "s3,cr=t"
    from_file = {"PENSTOCK_KAFKA_PROPERTIES__SASL_PASSWORD_FILE": str(tmp_path / "key")}
    assert Settings.load(tmp_path / ".penstock", from_file).kafka.properties == {
        "security.protocol": "SASL_SSL",
        "sasl.password": "s3,cr=t",
    }


def test_a_file_of_a_secret_that_is_not_there_or_set_twice(tmp_path: Path) -> None:
    (line,) = problems(tmp_path, "", {"PENSTOCK_S3_SECRET_KEY_FILE": str(tmp_path / "none")})
    assert line.startswith("PENSTOCK_S3_SECRET_KEY_FILE: cannot read ")
    (tmp_path / "key").write_text("k")
    both = {"PENSTOCK_S3_SECRET_KEY_FILE": str(tmp_path / "key"), "PENSTOCK_S3_SECRET_KEY": "x"}
    assert "keep one of them" in problems(tmp_path, "", both)[0]


def test_misspelt_variables_are_named_with_what_was_meant() -> None:
    unknown = Settings.unknown_variables(
        {
            "PENSTOCK_KAFKA_PROT": "1",
            "PENSTOCK_KAFKA_PORT": "1",
            "PENSTOCK_KAFKA_PROPERTIES__SASL_PASSWORD": "x",
            "PENSTOCK_S3_SECRET_KEY_FILE": "x",
            "PENSTOCK_KAFKA_PROPERTY__SASL_PASSWORD": "x",
            "PENSTOCK_KAFKA_PROPERTIES__": "x",
            "HOME": "x",
        }
    )
    assert [line.split()[0] for line in unknown] == [
        "PENSTOCK_KAFKA_PROPERTIES__",
        "PENSTOCK_KAFKA_PROPERTY__SASL_PASSWORD",
        "PENSTOCK_KAFKA_PROT",
    ]
    assert unknown[2] == "PENSTOCK_KAFKA_PROT sets nothing; did you mean PENSTOCK_KAFKA_PORT?"


def test_lines_of_toml() -> None:
    text = """\
# a comment = 1
a = 1
"b c" = [
  "d = 1",
]
e.f = \"\"\"
g = 1
\"\"\"
[ h . "i.j" ] # x
k = { l = 1 }
[[m]]
n = 2
"""
    assert toml_lines(text) == {
        (): 1,
        ("a",): 2,
        ("b c",): 3,
        ("e",): 6,
        ("e", "f"): 6,
        ("h",): 9,
        ("h", "i.j"): 9,
        ("h", "i.j", "k"): 10,
        ("m",): 11,
        ("m", "n"): 12,
    }
