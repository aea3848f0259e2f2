"""Whether anything answers at the object store's address: asked before a client waits for it."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

REACHABLE_TIMEOUT_SECONDS = 0.5


def reachable(endpoint: str) -> bool:
    """Whether anything accepts a connection at an HTTP address."""
    parts = urlsplit(endpoint)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        with socket.create_connection((parts.hostname or "", port), REACHABLE_TIMEOUT_SECONDS):
            return True
    except OSError:
        return False
