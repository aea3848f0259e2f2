"""docs/reference/ lists every key of the YAML components and every setting, as the code has them.

``PENSTOCK_REWRITE_GOLDENS=1 pytest tests/test_reference_pages.py`` writes the pages. A key that has
no description fails here too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
import yaml
from annotated_types import Ge, Le
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from penstock_broker.config.broker_config import BROKER_SETTINGS, DYNAMIC_NAMES
from penstock_broker.config.log_config import LOG_SETTINGS
from penstock_broker.config.security_settings import LISTENER_SETTINGS
from penstock_broker.config.table import INT32_MAX, INT64_MAX, ConfigType, Setting
from penstock_platform.components.platform_component import PlatformSpec
from penstock_platform.components.resource_component import ResourceSpec
from penstock_platform.quality.suite import QualitySpec
from penstock_platform.settings import OTHER_VARIABLES, Settings
from penstock_platform.topics.model.configs import TOPIC_CONFIGS
from penstock_platform.topics.model.declaration import TopicSpec, format_duration

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
NOTE = "Generated from the code by `tests/test_reference_pages.py`; do not edit.\n"

YAML_HEAD = f"""\
# The YAML of components

{NOTE}
A file `defs.yaml` in a folder under `defs/` declares one component, or several with `---` between
them: its type, and under `attributes` the keys below. A key that is not listed is an error, with
file, line and the nearest name. `penstock validate` reports all problems and starts nothing.

A *duration* is a number with its unit, `250ms`, `90s`, `15m`, `2h`, `7d`, `1w`, or several of them:
`1h 30m`. A *cron* has five fields, in UTC. *required* means that a key has no default.
"""

COMPONENTS: dict[str, tuple[type[BaseModel], str, str]] = {
    "TopicComponent": (
        TopicSpec,
        "A topic with its landing, contract, books and retention.",
        """\
metadata: {name: orders, labels: {domain: shop}}
description: Orders as the shop's checkout sends them.
owners: ["team:shop"]
spec: {partitions: 3, configs: {compression.type: zstd}}
land: {window: hourly}
schema: {file: orders.schema.json}
retention: {keep: 7d}
audit: {grace: 15m}
quarantine: {max_share: 0.05}
freshness: {fail_after: 3h, warn_after: 2h}""",
    ),
    "PlatformComponent": (
        PlatformSpec,
        "The sensors, schedules and jobs for all topics of the code location. Declare it "
        "once; every key has a default.",
        """\
reverify: {cron: "*/10 * * * *", windows: 12}
retention: {cron: "5 * * * *", apply: true}
observe: {cron: "* * * * *"}
quality: {cron: "*/15 * * * *"}""",
    ),
    "ResourceComponent": (
        ResourceSpec,
        "The resource `penstock`: connections to broker, object store, lake and Spark. Without one "
        "the PlatformComponent declares it with its defaults.",
        """\
home: /var/lib/penstock
env: {PENSTOCK_S3_SECRET_KEY: LAKE_SECRET_KEY}""",
    ),
    "QualityComponent": (
        QualitySpec,
        "A Great Expectations suite on a topic's silver table, one asset check per expectation. "
        "The checks do not block.",
        """\
topic: orders
expectations:
  - type: expect_column_values_to_be_between
    kwargs: {column: quantity, min_value: 1, max_value: 100}
    severity: warning""",
    ),
}

SETTINGS_HEAD = f"""\
# Settings

{NOTE}
## penstock.toml

The file is beside the state directory (`PENSTOCK_HOME`, default `.penstock/`), or in it. The
variable in the last column overrides the key; with `_FILE` at its end it names a file with the
value. Each key of a table has its own variable: `PENSTOCK_KAFKA_PROPERTIES__SASL_PASSWORD` is
`sasl.password` in `[kafka.properties]`. All mistakes are reported at once, with line or variable.

"""

BROKER_HEAD = """\
## The broker

The properties have Kafka's names. Set them in the file of `penstock-broker serve --config FILE`,
with `--set NAME=VALUE`, or in `[kafka.broker]` of `penstock.toml`. You can change *dynamic*
properties while the broker runs (`kafka-configs.sh --entity-type brokers`), and set *listener*
properties for one listener, as `listener.name.<name, lower case>.<setting>`.

| property | type | default | changed by | meaning |
|---|---|---|---|---|
"""

TOPICS_HEAD = """\
## Topics

The configs of a topic on Penstock's broker. Set them in `spec.configs` of its declaration, or
with `kafka-configs.sh --entity-type topics`. The broker's property sets the default for all topics.
On a declared topic, `retention.ms` and `retention.bytes` follow from the key `retention`.

| config | type | default | the broker's property | meaning |
|---|---|---|---|---|
"""

CONFIGS_HEAD = """\
The keys of `spec.configs` of a TopicComponent. Names and meanings are Kafka's;
[SETTINGS.md](SETTINGS.md#topics) describes each on Penstock's broker.
"""

VARIABLES = {
    "PENSTOCK_HOME": "The state directory; default: `.penstock` in the working directory.",
    "PENSTOCK_CACHE": "Directory of the jars and the bundled Java; default: the user's cache "
    "directory.",
    "PENSTOCK_DEBUG": "`1`: print the Python traceback of an error.",
    "PENSTOCK_BOOTSTRAP_SERVERS": "Default of `--bootstrap-server` of `penstock-client`.",
    "PENSTOCK_SEED": "Seed of a randomised test, as printed by a failed one.",
}
KINDS: dict[Any, str] = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "`true` or `false`",
    timedelta: "duration",
    tuple: "list of texts",
    dict: "table of texts",
    Path: "path",
}
# Set by the supervisor for its own services.
INTERNAL = {"PENSTOCK_SERVICE", "PENSTOCK_WORKERS_RUNNING"}


@dataclass(frozen=True)
class Key:
    """One key of a model: its path, and what the page says of it."""

    path: str
    kind: str
    default: str
    meaning: str


def keys(model: type[BaseModel], prefix: str = "") -> Iterator[Key]:
    """Every key that a document of this model may have, depth first, in the model's order."""
    for name, field in model.model_fields.items():
        path = prefix + (field.alias or name)
        assert field.description, f"{path} has no description"
        part = part_of(field.annotation)
        kind, default = kind_of(field, part), default_of(field, part)
        yield Key(path, kind, default, field.description)
        if part is not None:
            yield from keys(part, f"{path}[]." if is_list(field.annotation) else f"{path}.")


def options(annotation: Any) -> list[Any]:
    """``X | None`` → ``[X]``; any other annotation alone."""
    if isinstance(annotation, UnionType) or get_origin(annotation) is Union:
        found = [option for option in get_args(annotation) if option is not NoneType]
    else:
        found = [annotation]
    return [get_args(o)[0] if get_origin(o) is Annotated else o for o in found]


def is_list(annotation: Any) -> bool:
    return get_origin(options(annotation)[0]) is tuple


def part_of(annotation: Any) -> type[BaseModel] | None:
    """The model that a key holds, or a list of which it holds; None for a value."""
    one = options(annotation)[0]
    one = get_args(one)[0] if get_origin(one) is tuple else one
    return one if isinstance(one, type) and issubclass(one, BaseModel) else None


def default_of(field: FieldInfo, part: type[BaseModel] | None) -> str:
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True)
    if default is None:
        return "none"
    if part is not None:
        return ""
    if default in ("", (), {}):
        return "empty"
    if isinstance(default, timedelta):
        return f"`{format_duration(default)}`"
    return f"`{default if isinstance(default, str) else json.dumps(default)}`"


def kind_of(field: FieldInfo, part: type[BaseModel] | None) -> str:
    one = options(field.annotation)[0]
    nullable = NoneType in get_args(field.annotation)
    if part is not None:
        return "list of keys" if is_list(field.annotation) else "keys"
    if get_origin(one) is Literal:
        kind = " or ".join(f"`{value}`" for value in get_args(one))
    else:
        kind = KINDS[get_origin(one) or one]
    if get_args(one) == (str, Any):
        kind = "table"
    return kind + bounds(field.metadata) + (" or null" if nullable else "")


def bounds(metadata: list[Any]) -> str:
    low = next((m.ge for m in metadata if isinstance(m, Ge)), None)
    high = next((m.le for m in metadata if isinstance(m, Le)), None)
    if high is not None:
        return f", {low:,} to {high:,}"
    return f", at least {low:,}" if low is not None else ""


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def yaml_page() -> str:
    lines = [YAML_HEAD]
    for name, (model, text, example) in COMPONENTS.items():
        indented = "\n".join(f"  {line}" for line in example.splitlines())
        lines += [f"## {name}\n", f"{text}\n"]
        lines += [f"```yaml\ntype: penstock_platform.{name}\nattributes:\n{indented}\n```\n"]
        lines += ["| key | type | default | meaning |\n|---|---|---|---|"]
        lines += [
            f"| `{key.path}` | {cell(key.kind)} | {cell(key.default)} | {cell(key.meaning)} |"
            for key in keys(model)
        ]
        lines.append("")
    configs = [
        f"| `{name}` | {kind if isinstance(kind, str) else ', '.join(f'`{k}`' for k in kind)} |"
        for name, kind in TOPIC_CONFIGS.items()
    ]
    lines += ["## Topic configs\n", CONFIGS_HEAD]
    lines += ["| config | value |\n|---|---|", *configs]
    return "\n".join(lines) + "\n"


def settings_page() -> str:
    lines = [SETTINGS_HEAD + "| key | type | default | meaning | variable |\n|---|---|---|---|---|"]
    for key in keys(Settings):
        if key.path == "home" or key.kind == "keys":
            continue
        variable = f"PENSTOCK_{key.path.replace('.', '_').upper()}"
        assert variable in Settings.variables()
        kind = f"{key.kind}; `{variable}__<KEY>`" if key.kind.startswith("table") else key.kind
        cells = (f"`{key.path}`", kind, key.default, key.meaning, f"`{variable}`")
        lines.append(f"| {' | '.join(map(cell, cells))} |")
    lines += ["\nVariables without a key:\n", "| variable | meaning |\n|---|---|"]
    lines += [f"| `{name}` | {text} |" for name, text in VARIABLES.items()]
    lines += ["", BROKER_HEAD + "\n".join(broker_row(row) for row in BROKER_SETTINGS.values())]
    lines += ["", TOPICS_HEAD + "\n".join(topic_row(row) for row in LOG_SETTINGS.values())]
    return "\n".join(lines) + "\n"


def broker_row(row: Setting) -> str:
    ways = ["dynamic"] if row.name in DYNAMIC_NAMES else []
    ways += ["listener"] if row.name in LISTENER_SETTINGS else []
    cells = (f"`{row.name}`", row.type.name.lower(), value(row), ", ".join(ways), row.doc)
    return f"| {' | '.join(map(cell, cells))} |"


def topic_row(row: Setting) -> str:
    names = (row.broker_name or "", *(name for name, _ in row.aliases))
    properties = ", ".join(f"`{name}`" for name in names if name)
    cells = (f"`{row.name}`", row.type.name.lower(), value(row), properties, row.doc)
    return f"| {' | '.join(map(cell, cells))} |"


def value(row: Setting) -> str:
    if row.type is ConfigType.PASSWORD or row.default in ("", ()):
        return "empty"
    text = f"`{row.format(row.default)}`"
    if isinstance(row.default, int) and row.default in (INT32_MAX, INT64_MAX):
        return f"{text} (no limit)"
    return text


@pytest.mark.parametrize(("name", "page"), [("YAML.md", yaml_page), ("SETTINGS.md", settings_page)])
def test_a_page_is_what_the_code_has(name: str, page: Callable[[], str]) -> None:
    file = FOLDER / name
    if os.environ.get("PENSTOCK_REWRITE_GOLDENS"):
        file.write_text(page())
    assert file.read_text() == page(), "PENSTOCK_REWRITE_GOLDENS=1 rewrites it"


def test_every_variable_is_on_the_page() -> None:
    assert {*VARIABLES, *INTERNAL} == {"PENSTOCK_HOME", *OTHER_VARIABLES}


@pytest.mark.parametrize("name", COMPONENTS)
def test_an_example_is_valid(name: str) -> None:
    model, _, example = COMPONENTS[name]
    model.model_validate(yaml.safe_load(example))
