"""Settings of brokers that are changed while they run (KIP-226), kept with the metadata.

The section ``broker_configs`` of the metadata has one object of names and values per broker id,
and one for all brokers under the empty name. What was set for a broker comes before what was set
for all, and that before the configuration file. Only the settings of ``DYNAMIC_NAMES`` can be
changed; names that are not known here are kept, as Apache Kafka keeps them, and have no effect.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from penstock_broker.cluster.metadata_store import Change, MetadataStore
from penstock_broker.config import BrokerConfig, ConfigEntry, ConfigError
from penstock_broker.config.broker_config import (
    DYNAMIC_NAMES,
    known_broker_names,
    listener_setting,
)
from penstock_broker.errors import ErrorCode, KafkaError

SECTION = "broker_configs"
ALL_BROKERS = ""
SETTINGS_MAX = 1_000
"""Names that one broker's settings may have, so that they cannot fill the metadata."""

_logger = logging.getLogger(__name__)


class BrokerConfigs:
    """The broker's settings as they are in force. Owned by the event loop."""

    def __init__(self, given: BrokerConfig, metadata: MetadataStore) -> None:
        self._given = given
        self._metadata = metadata
        self.listeners: list[Callable[[BrokerConfig], None]] = []
        """Called with the settings that are now in force, after each change."""
        try:
            self.current = self._effective(metadata.section(SECTION))
        except ConfigError as error:
            # Written by a release that knew it otherwise: the file's settings are still good.
            _logger.error("settings that were changed while running are ignored: %s", error)
            self.current = given

    def overrides(self, name: str) -> Mapping[str, str]:
        """What was set while running, by the name of the resource. INVALID_REQUEST."""
        self._require(name)
        return self.current.dynamic_default if name == ALL_BROKERS else self.current.dynamic

    def describe(self, name: str, names: Iterable[str] | None) -> list[ConfigEntry]:
        """DescribeConfigs of this broker, or of all of them. INVALID_REQUEST."""
        own = self._given.broker_id
        if name == ALL_BROKERS:
            return self.current.describe_dynamic_default(names)
        if _number(name, "Broker") != own:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {own} or empty string, but received {name}",
            )
        return self.current.describe_broker(names)

    def putting(
        self, name: str, values: Mapping[str, str], *, validate_only: bool = False
    ) -> Change[None]:
        """Replace what was set while running. KafkaError: INVALID_REQUEST for a name that cannot
        be changed or a bad value, KAFKA_STORAGE_ERROR."""
        before = self.overrides(name)
        fixed = sorted(
            key
            for key in {**before, **values}
            if _is_fixed(key) and values.get(key) != before.get(key)
        )
        if fixed:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Cannot update these configs dynamically: [{', '.join(fixed)}]",
            )
        if len(values) > SETTINGS_MAX:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"More than {SETTINGS_MAX} settings.")
        section = {**self._metadata.section(SECTION), self._key(name): dict(sorted(values.items()))}
        try:
            changed = self._effective(section)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
        if validate_only:
            return
        try:
            yield from self._metadata.putting_section(SECTION, section)
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"cannot keep the settings: {error}"
            ) from error
        self.current = changed
        for listener in self.listeners:
            listener(changed)

    def _effective(self, section: Mapping[str, Mapping[str, str]]) -> BrokerConfig:
        own = section.get(str(self._given.broker_id), {})
        return self._given.with_dynamic(own, section.get(ALL_BROKERS, {}))

    def _key(self, name: str) -> str:
        return ALL_BROKERS if name == ALL_BROKERS else str(self._given.broker_id)

    def _require(self, name: str) -> None:
        own = self._given.broker_id
        if name != ALL_BROKERS and _number(name, "Node") != own:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {own}, but received {name}",
            )


def _is_fixed(name: str) -> bool:
    """Whether it is a setting that a running broker keeps."""
    is_known = name in known_broker_names() or listener_setting(name) is not None
    return is_known and name not in DYNAMIC_NAMES


def _number(name: str, what: str) -> int:
    try:
        return int(name)
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"{what} id must be an integer, but it is: {name}"
        ) from None
