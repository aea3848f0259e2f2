"""TLS for a listener: a context from PEM files, made again when they change."""

from __future__ import annotations

import logging
import re
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path

from penstock_broker.config import ListenerConfig
from penstock_broker.config.broker_config import BrokerConfig

_logger = logging.getLogger(__name__)

_CLIENT_AUTH = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


class TlsError(Exception):
    """Certificates or keys that cannot be used; ``str()`` says which, for the user."""


class TlsContext:
    """The context that new connections of a listener get."""

    def __init__(self, listener: ListenerConfig, on_reload: Callable[[str], None]) -> None:
        """``on_reload`` is called with "success" or "failure". TlsError."""
        self._name = listener.name
        self._settings = listener.settings
        self._on_reload = on_reload
        self._seen = file_signature(self._files())
        self.current = make_context(self._name, self._settings)

    def _files(self) -> tuple[str, ...]:
        settings = self._settings
        return tuple(
            path
            for path in (settings.ssl_keystore_location, settings.ssl_truststore_location)
            if path
        )

    def refresh(self) -> None:
        """Look at the files. Should the new ones be unusable, the old context continues serving;
        that is logged once for each change, and they are tried again with the next."""
        seen = file_signature(self._files())
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self.current = make_context(self._name, self._settings)
        except TlsError as error:
            _logger.error("%s; listener %s keeps the old ones", error, self._name)
            self._on_reload("failure")
        else:
            _logger.info("listener %s has new certificates", self._name)
            self._on_reload("success")


def file_signature(paths: tuple[str, ...]) -> tuple[object, ...]:
    """What changes when a file is written or replaced."""
    found: list[object] = []
    for path in paths:
        try:
            status = Path(path).stat()
        except OSError as error:
            found.append(error.errno)
        else:
            found.append((status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(found)


def make_context(name: str, settings: BrokerConfig) -> ssl.SSLContext:
    """A server's context from the ``ssl.…`` settings of listener ``name``. TlsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if "TLSv1.3" not in settings.ssl_enabled_protocols:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    if "TLSv1.2" not in settings.ssl_enabled_protocols:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = _CLIENT_AUTH[settings.ssl_client_auth]
    try:
        if settings.ssl_cipher_suites:
            context.set_ciphers(":".join(map(openssl_name, settings.ssl_cipher_suites)))
        what = settings.ssl_keystore_location or "ssl.keystore.certificate.chain"
        _load_key(context, settings)
        what = settings.ssl_truststore_location or "ssl.truststore.certificates"
        if settings.ssl_truststore_location:
            context.load_verify_locations(cafile=settings.ssl_truststore_location)
        elif settings.ssl_truststore_certificates:
            context.load_verify_locations(cadata=_pem(settings.ssl_truststore_certificates))
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise TlsError(f"listener {name}: cannot use {what}: {error}") from error
    return context


def _load_key(context: ssl.SSLContext, settings: BrokerConfig) -> None:
    def password() -> str:  # always given: OpenSSL would ask on the terminal
        return settings.ssl_key_password.value

    if settings.ssl_keystore_location:
        context.load_cert_chain(settings.ssl_keystore_location, password=password)
        return
    # The ssl module reads keys from files only; this file is private and removed at once.
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        path = Path(folder, "key.pem")
        text = f"{_pem(settings.ssl_keystore_key.value)}\n"
        text += _pem(settings.ssl_keystore_certificate_chain)
        path.touch(mode=0o600)
        path.write_text(text)
        context.load_cert_chain(path, password=password)


def _pem(text: str) -> str:
    """PEM out of a settings file: where it is one line, ``\\n`` means a line end, or the
    blocks are given with spaces for them."""
    text = text.replace("\\n", "\n")
    if "\n" in text:
        return text
    return re.sub(
        r"(-----BEGIN [A-Z0-9 ]+-----)\s*(.*?)\s*(-----END [A-Z0-9 ]+-----)\s*",
        lambda block: "\n".join((block[1], *block[2].split(), block[3], "")),
        text,
    )


def openssl_name(suite: str) -> str:
    """A cipher suite's IANA name (Java's) as OpenSSL's."""
    if not suite.startswith("TLS_") or "_WITH_" not in suite:
        return suite
    exchange, _, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    cipher = re.sub(r"AES_(\d+)", r"AES\1", cipher).replace("_CBC", "")
    cipher = cipher.replace("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305")
    return "-".join(([] if exchange == "RSA" else [exchange]) + [cipher]).replace("_", "-")
