"""The declaration of a topic, and every name that follows from it.

One YAML document a topic::

    metadata: {name: shop.orders, labels: {domain: shop}}
    spec: {partitions: 6, replicas: 1, configs: {cleanup.policy: delete}}
    retention: {keep: 7d, max_bytes: null}
    schema: {format: json, file: orders.schema.json, version: 1}
    owners: ["team:shop"]
    description: Orders as the shop's checkout sends them.
    deletion_policy: retain                # the only one: no declaration deletes a topic
    land: {window: hourly, max_records: 5000000, start: earliest}
    audit: {grace: 15m, severity: ERROR, accept_unaudited: false}
    quarantine: {max_share: 0.05}          # above this share of a window there is an alert
    freshness: {fail_after: 2h, warn_after: 90m}

Only ``metadata.name`` is required. Errors name the file, the line, the key, what was found and
what would do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from penstock_platform.problems import problems_of
from penstock_platform.topics.model.configs import config_problem
from penstock_platform.topics.model.cron import CronError, cron_of

AUDIT_TOPIC = "__penstock_audit"
CATALOG = "lake"
MAX_RECORDS_DEFAULT = 5_000_000
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_OWNER = re.compile(r"team:[A-Za-z0-9_]+|[^@\s]+@[^@\s]+\.[^@\s]+")


class TopicError(ValueError):
    """A declaration that cannot be used: one line a problem, with file, line, key and remedy."""


def parse_duration(value: object) -> timedelta:
    """``90s``, ``15m``, ``2h``, ``7d``, ``1h 30m``. Raises ValueError for anything else."""
    if isinstance(value, timedelta):
        return value
    text = value.strip() if isinstance(value, str) else ""
    parts = _DURATION.findall(text)
    if not parts or _DURATION.sub("", text).strip():
        raise ValueError("write a number with its unit: 90s, 15m, 2h, 7d")
    return timedelta(seconds=sum(float(number) * _SECONDS[unit] for number, unit in parts))


def format_duration(value: timedelta) -> str:
    """The shortest text that ``parse_duration`` reads back: ``15m``, ``36h``, ``250ms``."""
    milliseconds = round(value.total_seconds() * 1000)
    for unit, size in (("d", 86400000), ("h", 3600000), ("m", 60000), ("s", 1000)):
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms"


Duration = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema({"type": "string", "examples": ["90s", "15m", "2h", "7d", "1h 30m"]}),
]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class TopicMetadata(_Part):
    """What the topic is called, and under which labels Dagster shows it."""

    name: str = Field(description="The topic's name on the broker.")
    labels: dict[str, str] = Field(
        default_factory=dict, description="Tags of the topic's assets, such as domain: shop."
    )

    @field_validator("name")
    @classmethod
    def _is_a_topic_name(cls, name: str) -> str:
        if not _NAME.fullmatch(name) or name in (".", ".."):
            raise ValueError("topic names have 1 to 249 of the characters a-z A-Z 0-9 . _ -")
        return name


class PartitionsSpec(_Part):
    """``spec``: what the broker gets. ``configs`` are Kafka's topic configs by their names."""

    partitions: int = Field(
        default=1, ge=1, le=10_000, description="Number of partitions; it can be raised later."
    )
    replicas: int = Field(
        default=1, ge=1, le=32, description="Replication factor, used when the topic is created."
    )
    configs: dict[str, str] = Field(
        default_factory=dict,
        description="Kafka's topic configs by their names, such as max.message.bytes. Not "
        "retention.*: use the key retention.",
        json_schema_extra={"additionalProperties": {"type": ["string", "number", "boolean"]}},
    )

    @field_validator("configs", mode="before")
    @classmethod
    def _are_known_configs(cls, configs: object) -> object:
        if not isinstance(configs, Mapping):
            return configs
        texts = {str(name): _config_text(value) for name, value in configs.items()}
        problems = [p for name, value in texts.items() if (p := config_problem(name, value))]
        if problems:
            raise ValueError("; ".join(problems))
        return texts


class RetentionSpec(_Part):
    """How long the log is kept: ``keep`` counts from a window's close; null keeps forever.

    ``hold_for`` names consumer groups. They need not exist when the declaration is loaded: groups
    come and go, and one that is not there holds everything.
    """

    keep: Duration | None = Field(
        default=None,
        description="How long a window is kept after its close, such as 7d; null: no limit.",
    )
    max_bytes: int | None = Field(
        default=None, ge=1, description="Limit of the topic's log in bytes; null: no limit."
    )
    hold_for: tuple[str, ...] = Field(
        default=(),
        description="Consumer groups that the sweep waits for: it deletes no record that one of "
        "them has not committed past; needs land.",
    )

    @field_validator("hold_for", mode="before")
    @classmethod
    def _are_groups(cls, groups: object) -> object:
        if isinstance(groups, str):
            raise ValueError(f"write a list of consumer groups: [{groups}]")
        if isinstance(groups, list | tuple) and any(not str(g or "").strip() for g in groups):
            raise ValueError("the name of a consumer group is not empty")
        return groups


class SchemaSpec(_Part):
    """The contract by which silver is parsed; ``file`` is relative to the declaration.

    ``version`` is the silver table's: a contract that does not fit the table gets a new one.
    """

    format: Literal["json"] = Field(default="json", description="How values are encoded.")
    file: str = Field(description="A JSON Schema file; the path is relative to this file.")
    version: int = Field(
        default=1,
        ge=1,
        le=1000,
        description="Version of the silver table: raise it when the contract no longer fits it.",
    )


class LandSpec(_Part):
    """Landing in the lake: ``window`` is minutely, hourly, daily or a cron in UTC.

    ``max_records`` bounds every window; a tick that holds more is several windows. ``start``: where
    the chain of a topic that has records already begins: ``earliest``, ``latest`` or an ISO 8601
    timestamp with its offset from UTC. It is decided once, when the topic is first frozen.
    """

    window: str = Field(
        default="hourly",
        description="How often a window closes: minutely, hourly, daily, or a cron in UTC.",
    )
    max_records: int = Field(
        default=MAX_RECORDS_DEFAULT,
        ge=1,
        description="Maximum of records in a window; a tick with more becomes several windows.",
    )
    start: str = Field(
        default="earliest",
        description="Where the first window of a topic with records begins: earliest, latest, or "
        "an ISO 8601 timestamp with its offset from UTC. Read once, at the first freeze.",
    )

    @field_validator("window")
    @classmethod
    def _is_a_cron(cls, window: str) -> str:
        try:
            cron_of(window)
        except CronError as error:
            raise ValueError(str(error)) from error
        return window

    @field_validator("start", mode="before")
    @classmethod
    def _is_a_start(cls, start: object) -> object:
        # YAML reads a timestamp as one.
        text = start.isoformat() if isinstance(start, datetime) else start
        if text in ("earliest", "latest"):
            return text
        try:
            moment = datetime.fromisoformat(str(text))
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            raise ValueError(
                f"{str(text)!r} is neither earliest, latest nor a timestamp with its offset from "
                "UTC, such as 2026-11-20T00:00:00Z"
            )
        return text

    @property
    def cron(self) -> str:
        return cron_of(self.window)

    @property
    def start_time(self) -> datetime | None:
        """The timestamp of ``start``; None for ``earliest`` and ``latest``."""
        if self.start in ("earliest", "latest"):
            return None
        return datetime.fromisoformat(self.start)


class AuditSpec(_Part):
    """``grace``: how long producers' evidence may be due before records count as unaudited."""

    grace: Duration = Field(
        default=timedelta(minutes=15),
        description="How long the books wait for evidence; records without it are then UNAUDITED.",
    )
    severity: Literal["WARN", "ERROR"] = Field(
        default="ERROR",
        description="Severity of the check produced_equals_stored. WARN also makes all alerts "
        "about the books of this topic warnings.",
    )
    accept_unaudited: bool = Field(
        default=False,
        description="Whether UNAUDITED windows pass the check, raise no alert and may be deleted.",
    )


class QuarantineSpec(_Part):
    """``max_share``: the share of a window's records (0 to 1) that may fail the contract before
    that is an incident; null for any."""

    max_share: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Alert if more than this share (0 to 1) of a window is in quarantine.",
    )


class FreshnessSpec(_Part):
    """How old the newest landed window may be before Dagster warns, and fails the asset."""

    fail_after: Duration = Field(
        description="Age at which the freshness of the landed table fails."
    )
    warn_after: Duration | None = Field(
        default=None, description="Age at which Dagster warns; must be shorter than fail_after."
    )

    @model_validator(mode="after")
    def _warns_first(self) -> FreshnessSpec:
        if self.warn_after is not None and self.warn_after >= self.fail_after:
            raise ValueError("warn_after must be shorter than fail_after")
        return self


class TopicSpec(_Part):
    """One topic as declared. ``contract`` is the document's key ``schema``."""

    metadata: TopicMetadata = Field(description="Name and labels.")
    spec: PartitionsSpec = Field(
        default=PartitionsSpec(), description="Partitions, replicas and configs on the broker."
    )
    retention: RetentionSpec = Field(
        default=RetentionSpec(),
        description="How long the broker keeps records. With land, it deletes proven windows only.",
    )
    contract: SchemaSpec | None = Field(
        default=None,
        alias="schema",
        description="The contract by which silver is parsed; needs land.",
    )
    owners: tuple[str, ...] = Field(
        default=(), description="team:name or e-mail addresses; alerts name them."
    )
    description: str = Field(default="", description="What the records are; Dagster shows it.")
    deletion_policy: str = Field(
        default="retain", description="Only retain: declarations never delete a topic."
    )
    land: LandSpec | None = Field(
        default=None, description="Land the topic in the lake; {} for hourly windows."
    )
    audit: AuditSpec = Field(
        default=AuditSpec(), description="How producers' evidence is compared with the log."
    )
    quarantine: QuarantineSpec = Field(
        default=QuarantineSpec(), description="How many records may fail the contract."
    )
    freshness: FreshnessSpec | None = Field(
        default=None, description="Freshness policy of the landed table."
    )
    heal: Literal["manual", "auto"] = Field(
        default="manual",
        description="auto: damaged windows are landed again without a person, where the log or a "
        "snapshot of the table has their records.",
    )

    @field_validator("deletion_policy")
    @classmethod
    def _retains(cls, policy: str) -> str:
        """A key that is known from other tools, and whose other value would be a promise that
        nothing keeps: the platform never deletes a topic."""
        if policy != "retain":
            raise ValueError(
                "retain is the only policy: a topic whose declaration is removed stays on the "
                "broker, and its windows and tables stay, too. Remove this key; to delete the "
                "topic, see that its last windows are BALANCED (penstock audit TOPIC) and use "
                "Kafka's own command: kafka-topics --delete --topic TOPIC"
            )
        return policy

    @field_validator("owners")
    @classmethod
    def _are_owners(cls, owners: tuple[str, ...]) -> tuple[str, ...]:
        for owner in owners:
            if not _OWNER.fullmatch(owner):
                raise ValueError(f"{owner!r} is neither team:name nor an e-mail address")
        return owners

    @model_validator(mode="after")
    def _parses_what_it_lands(self) -> TopicSpec:
        if self.contract is not None and self.land is None:
            raise ValueError(
                "schema needs land: silver is parsed from the landed table; add land: {}"
            )
        if self.retention.hold_for and self.land is None:
            raise ValueError(
                "retention.hold_for needs land: a topic that is not landed is deleted by its "
                "broker, which waits for no group; add land: {}"
            )
        if self.quarantine.max_share is not None and self.contract is None:
            raise ValueError(
                "quarantine needs schema: without a contract no record is refused; add "
                "schema: {file: …}"
            )
        return self

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def table(self) -> str:
        return table_part(self.name)

    @property
    def silver_version(self) -> int:
        """The version of the silver table that new windows are parsed into."""
        return self.contract.version if self.contract is not None else 1

    @property
    def compacted(self) -> bool:
        return "compact" in self.spec.configs.get("cleanup.policy", "delete")

    @property
    def log_append_time(self) -> bool:
        return self.spec.configs.get("message.timestamp.type", "CreateTime") == "LogAppendTime"

    @property
    def broker_configs(self) -> dict[str, str]:
        """The topic configs the broker gets, with its own deletion switched off.

        A landed topic is swept by the platform, window by window, once it is proven. A topic that
        is not landed cannot be proven: its ``retention`` becomes the broker's.
        """
        if self.land is not None:
            kept = {"retention.ms": "-1", "retention.bytes": "-1"}
        else:
            keep, size = self.retention.keep, self.retention.max_bytes
            kept = {
                "retention.ms": str(round(keep.total_seconds() * 1000)) if keep else "-1",
                "retention.bytes": str(size) if size else "-1",
            }
        return {**self.spec.configs, **kept}


def parse_topic(
    values: Mapping[str, Any],
    file: str = "",
    lines: Mapping[tuple[str | int, ...], int] | None = None,
) -> TopicSpec:
    """Validate one declaration. Raises TopicError naming file, line, key, finding and remedy.

    ``lines`` maps key paths to 1-based lines, as ``key_lines`` gives them.
    """
    try:
        return TopicSpec.model_validate(dict(values))
    except ValidationError as error:
        raise TopicError("\n".join(problems_of(error, TopicSpec, file, lines))) from None


def load_topic(text: str, file: str = "") -> TopicSpec:
    """Read a declaration from YAML text, stand-alone or as the ``attributes`` of a component.

    Raises TopicError, also for YAML that is none.
    """
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise TopicError(f"{file or 'declaration'}: not YAML: {error}") from error
    if not isinstance(document, Mapping):
        raise TopicError(f"{file or 'declaration'}: expected keys such as metadata and spec")
    lines = key_lines(text)
    if isinstance(document.get("attributes"), Mapping):
        document = document["attributes"]
        lines = {path[1:]: line for path, line in lines.items() if path[:1] == ("attributes",)}
    return parse_topic(document, file, lines)


def key_lines(text: str) -> dict[tuple[str | int, ...], int]:
    """The 1-based line of every key path of a YAML document; the first document, if several."""
    root = next(iter(yaml.compose_all(text)), None)
    return node_lines(root) if root is not None else {}


def node_lines(root: yaml.Node) -> dict[tuple[str | int, ...], int]:
    """The 1-based line of every key path under a node of YAML."""
    lines: dict[tuple[str | int, ...], int] = {(): root.start_mark.line + 1}

    def walk(node: yaml.Node, path: tuple[str | int, ...]) -> None:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                here = (*path, str(key.value))
                lines[here] = key.start_mark.line + 1
                walk(value, here)
        elif isinstance(node, yaml.SequenceNode):
            for index, value in enumerate(node.value):
                lines[(*path, index)] = value.start_mark.line + 1
                walk(value, (*path, index))

    walk(root, ())
    return lines


def table_part(topic: str) -> str:
    """The topic's name in tables: lower case, other characters one ``_``, no leading ``_``."""
    return re.sub(r"[^a-z0-9]+", "_", topic.lower()).lstrip("_")


def bronze_table(topic: str) -> str:
    return f"{CATALOG}.bronze.{table_part(topic)}"


def versioned_part(topic: str, version: int) -> str:
    """The topic's part in the names of silver and quarantine: ``orders``, ``orders_v2``."""
    return table_part(topic) if version == 1 else f"{table_part(topic)}_v{version}"


def silver_table(topic: str, version: int = 1) -> str:
    return f"{CATALOG}.silver.{versioned_part(topic, version)}"


def quarantine_table(topic: str, version: int = 1) -> str:
    return f"{CATALOG}.quarantine.{versioned_part(topic, version)}"


def mart_table(name: str) -> str:
    return f"{CATALOG}.marts.{name}"


def consumer_group(topic: str) -> str:
    """The ordinary consumer group that shows the landed offsets to any Kafka tool."""
    return f"penstock.bronze.{table_part(topic)}"


def topic_key(cluster: str, topic: str) -> list[str]:
    """Asset keys, as lists of parts. Dots in a topic's name stay inside one part."""
    return [cluster, "topic", topic]


def bronze_key(topic: str) -> list[str]:
    return [CATALOG, "bronze", table_part(topic)]


def silver_key(topic: str, version: int = 1) -> list[str]:
    return [CATALOG, "silver", versioned_part(topic, version)]


def quarantine_key(topic: str, version: int = 1) -> list[str]:
    return [CATALOG, "quarantine", versioned_part(topic, version)]


def books_key(topic: str) -> list[str]:
    return ["books", topic]


def retention_key(topic: str) -> list[str]:
    return ["retention", topic]


def collisions(declared: Iterable[tuple[TopicSpec, str]]) -> list[str]:
    """What is wrong between declarations: two share a topic, or land in one table.

    ``declared``: each with its place (`file:line`). Every sentence names both places.
    """
    topics: dict[str, str] = {}
    tables: dict[str, tuple[str, str]] = {}
    problems = []
    for spec, place in declared:
        if spec.name in topics:
            problems.append(
                f"{place}: topic {spec.name} is declared twice, first at {topics[spec.name]}; "
                "keep one declaration"
            )
            continue
        topics[spec.name] = place
        if spec.land is None:
            continue
        names = {spec.table, versioned_part(spec.name, spec.silver_version)}
        taken = [tables.setdefault(name, (spec.name, place)) for name in sorted(names)]
        other, other_place = next((t for t in taken if t[0] != spec.name), taken[0])
        if other != spec.name:
            problems.append(
                f"{place}: topics {other} ({other_place}) and {spec.name} would both land in "
                f"{bronze_table(spec.name)}; rename one of them"
            )
    return problems


def refuse_collisions(declared: Iterable[tuple[TopicSpec, str]]) -> None:
    """Raises TopicError with all sentences of ``collisions``, when there are any."""
    if problems := collisions(declared):
        raise TopicError("\n".join(problems))


def _config_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
