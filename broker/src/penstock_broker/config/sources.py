"""Where settings are read from: a properties file, and assignments on top of it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from penstock_broker.config.broker_config import (
    BrokerConfig,
    known_broker_names,
    listener_setting,
)
from penstock_broker.config.table import ConfigError, near


def read_properties(path: Path) -> dict[str, str]:
    """A Java-style properties file: ``name=value`` lines, ``#`` and ``!`` comments.

    A line that ends with a backslash continues in the next one.
    """
    properties: dict[str, str] = {}
    text = ""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not text and line.lstrip()[:1] in ("", "#", "!"):
            continue
        text += line.strip()
        if text.endswith("\\"):
            text = text[:-1]
            continue
        name, separator, value = text.partition("=")
        if not separator:  # the line itself may hold half a secret
            raise ConfigError(f"{path}:{number}: expected name=value")
        properties[name.strip()] = value.strip()
        text = ""
    return properties


def near_names(name: str) -> str:
    """Known settings that look like ``name``, as the end of a message; empty for none."""
    return near(name, known_broker_names())


def load_config(
    path: Path | None, assignments: Iterable[str] = ()
) -> tuple[BrokerConfig, list[str]]:
    """The configuration of ``--config FILE`` with ``--set name=value`` on top.

    Returns it with the names in the file that are not known here: a file written for Apache
    Kafka holds many, and they are worth a warning, not a refusal. In an assignment they are a
    :class:`ConfigError`, as a bad value is in either.
    """
    properties = read_properties(path) if path is not None else {}
    known = known_broker_names()
    unknown = sorted(
        name for name in properties if name not in known and listener_setting(name) is None
    )
    for name in unknown:
        del properties[name]
    for assignment in assignments:
        name, separator, value = assignment.partition("=")
        if not separator:
            raise ConfigError(f"expected name=value, found {assignment!r}")
        properties[name.strip()] = value.strip()
    return BrokerConfig.parse(properties), unknown
