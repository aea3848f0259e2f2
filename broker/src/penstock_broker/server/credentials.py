"""What a listener knows of its users: their file, read again when it changes, and the cluster's."""

from __future__ import annotations

import logging
import stat
from pathlib import Path

from penstock_broker.config import ConfigError, ListenerConfig
from penstock_broker.security.scram import ScramCredential
from penstock_broker.security.scram_store import ScramStore
from penstock_broker.security.users import Users, parse_jaas, parse_users_file
from penstock_broker.server.tls import file_signature

_logger = logging.getLogger(__name__)


class ListenerCredentials:
    """SCRAM goes by the cluster's credentials, which admin requests change; SCRAM and PLAIN by the
    file, for whom the cluster has none of: once it has, a password of the file is of no use any
    more. Users of the JAAS line are PLAIN's own, as in Kafka."""

    def __init__(self, listener: ListenerConfig, scram: ScramStore) -> None:
        """ConfigError."""
        self._name = listener.name
        self._path = listener.settings.sasl_users_file
        self._scram = scram
        self._jaas = parse_jaas(listener.settings.plain_sasl_jaas_config.value)
        self._seen = file_signature((self._path,) if self._path else ())
        try:
            self._users = self._read()
        except (OSError, ValueError) as error:
            raise ConfigError(f"sasl.users.file {self._path}: {error}") from error

    def _read(self) -> Users:
        if not self._path:
            return Users()
        path = Path(self._path)
        if path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
            _logger.warning("%s holds passwords and can be read by others", path)
        return parse_users_file(path.read_text(encoding="utf-8"))

    def refresh(self) -> None:
        """Look at the file; while the new one cannot be used, the old users stay."""
        if not self._path:
            return
        seen = file_signature((self._path,))
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._users = self._read()
        except (OSError, ValueError) as error:
            _logger.error("%s: %s; the users stay unchanged", self._path, error)
        else:
            _logger.info("listener %s: %d users in its files", self._name, len(self._users))

    def check_password(self, name: str, password: str) -> bool:
        """Whether this is the password of ``name``."""
        is_jaas = self._jaas.check_password(name, password)
        is_file = self._users.check_password(name, password)
        return is_jaas or (is_file and not self._scram.mechanisms(name))

    def credential(self, name: str, mechanism: str) -> ScramCredential | None:
        """What SCRAM needs to know of ``name``."""
        if self._scram.mechanisms(name):
            return self._scram.credential(name, mechanism)
        return self._users.credential(name, mechanism)
