"""What a row of a settings table is: its type, valid values, and how text becomes a value."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import Field, dataclass, field, fields
from enum import IntEnum
from typing import Any

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


class Password:
    """A secret: in no log and no answer."""

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value = value

    def __bool__(self) -> bool:
        return bool(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return "[hidden]"


Value = int | float | bool | str | tuple[str, ...] | Password
Check = Callable[[Any], str | None]


class ConfigError(ValueError):
    """A setting that is unknown or whose value is not valid; ``str()`` is for the user."""


class ConfigType(IntEnum):
    """The type codes of DescribeConfigs v3+ (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


class ConfigSource(IntEnum):
    """Where a value comes from, as DescribeConfigs v1+ says it."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of a table."""

    name: str
    type: ConfigType
    default: Value
    doc: str
    check: Check | None = None
    broker_name: str | None = None
    """For topic settings: the broker property that gives the default."""
    aliases: tuple[tuple[str, int], ...] = ()
    """Other broker properties in coarser units, with their factor; the finest one given wins."""

    def parse(self, text: str) -> Value:
        """The typed, validated value of ``text``; :class:`ConfigError` with Kafka's wording."""
        value = _PARSERS[self.type](self.name, text.strip())
        problem = self.check(value) if self.check is not None else None
        if problem is not None:
            raise ConfigError(f"Invalid value {text} for configuration {self.name}: {problem}")
        return value

    def show(self, value: Value) -> str | None:
        """As :meth:`format`, and None for a secret."""
        return None if self.type is ConfigType.PASSWORD else self.format(value)

    def format(self, value: Value) -> str:
        """The text that Kafka would show for ``value``."""
        if isinstance(value, bool):
            return "true" if value else "false"
        return ",".join(value) if isinstance(value, tuple) else str(value)


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A setting that would apply if the ones before it were not there."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One line of a DescribeConfigs answer."""

    name: str
    value: str | None
    """None for a secret."""
    source: ConfigSource
    type: ConfigType
    doc: str
    read_only: bool
    synonyms: tuple[ConfigSynonym, ...]

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT

    @property
    def is_sensitive(self) -> bool:
        """Whether its value is never shown."""
        return self.type is ConfigType.PASSWORD


def _integer(name: str, text: str, bits: int) -> int:
    kind = "INT" if bits == 32 else "LONG"
    try:
        value = int(text)
    except ValueError:
        raise ConfigError(
            f"Invalid value {text} for configuration {name}: Not a number of type {kind}"
        ) from None
    if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise ConfigError(
            f"Invalid value {text} for configuration {name}: Not a number of type {kind}"
        )
    return value


def _double(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(
            f"Invalid value {text} for configuration {name}: Not a number of type DOUBLE"
        ) from None


def _boolean(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ConfigError(
            f"Invalid value {text} for configuration {name}: "
            "Expected value to be either true or false"
        )
    return text.lower() == "true"


_PARSERS: dict[ConfigType, Callable[[str, str], Value]] = {
    ConfigType.BOOLEAN: _boolean,
    ConfigType.STRING: lambda _name, text: text,
    ConfigType.INT: lambda name, text: _integer(name, text, 32),
    ConfigType.LONG: lambda name, text: _integer(name, text, 64),
    ConfigType.DOUBLE: _double,
    ConfigType.PASSWORD: lambda _name, text: Password(text),
    ConfigType.LIST: lambda _name, text: tuple(
        p for p in (s.strip() for s in text.split(",")) if p
    ),
}


def at_least(low: float) -> Check:
    return lambda value: None if value >= low else f"Value must be at least {low}"


def between(low: float, high: float) -> Check:
    def check(value: float) -> str | None:
        if value < low:
            return f"Value must be at least {low}"
        return None if value <= high else f"Value must be no more than {high}"

    return check


def split_address(text: str) -> tuple[str, int]:
    """Host and port of ``host:port`` or ``[host]:port``; ValueError says what is wrong."""
    host, separator, port = text.rpartition(":")
    if not separator or not host:
        raise ValueError("expected host:port")
    if not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ValueError(f"{port!r} is not a port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def http_address_problem(text: str) -> str | None:
    try:
        if text:
            split_address(text)
    except ValueError as error:
        return str(error)
    return None


def between_or(low: int, high: int, other: int) -> Check:
    text = f"Value must be between {low} and {high} or equal to {other}"
    return lambda value: None if low <= value <= high or value == other else text


def one_of(*names: str) -> Check:
    return lambda value: None if value in names else f"String must be one of: {', '.join(names)}"


def each_of(*names: str, may_be_empty: bool = False) -> Check:
    def check(values: tuple[str, ...]) -> str | None:
        if not values and not may_be_empty:
            return "Configuration must not be empty"
        bad = [value for value in values if value not in names]
        return f"String must be one of: {', '.join(names)}" if bad else None

    return check


def setting(
    name: str,
    kind: ConfigType,
    default: Value,
    doc: str,
    *,
    check: Check | None = None,
    broker: str | None = None,
    aliases: tuple[tuple[str, int], ...] = (),
) -> Any:
    """A dataclass field that is a row of the table."""
    row = Setting(name, kind, default, doc, check, broker, aliases)
    return field(default=default, metadata={"setting": row})


def rows_of(cls: type[Any]) -> dict[str, Setting]:
    rows: list[Setting] = [item.metadata["setting"] for item in fields(cls) if item.metadata]
    return {row.name: row for row in sorted(rows, key=lambda row: row.name)}


def attributes_of(cls: type[Any]) -> dict[str, str]:
    items: tuple[Field[Any], ...] = fields(cls)
    return {item.metadata["setting"].name: item.name for item in items if item.metadata}


def unknown_name(name: str, known: Iterable[str]) -> str:
    return f"Unknown configuration {name}{near(name, known)}"


def near(name: str, known: Iterable[str]) -> str:
    """Up to three names that look like ``name``, as the end of a message; empty for none."""
    close = difflib.get_close_matches(name, list(known), n=3, cutoff=0.75)
    return f"; did you mean {' or '.join(close)}?" if close else ""
