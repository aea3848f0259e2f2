"""Notifying systemd (sd_notify): ready, stopping, alive.

A datagram to the socket that systemd names in the environment; without one, nothing. That is the
whole protocol, so no library is needed for it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket

_logger = logging.getLogger(__name__)


def notify(state: str) -> bool:
    """Send ``READY=1`` and its like; whether systemd listens."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    if address.startswith("@"):  # Linux' abstract names
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.connect(address)
            sock.sendall(state.encode())
    except OSError as error:
        _logger.warning(
            "systemd cannot be notified of %(state)s: %(reason)s",
            {"event": "notify_failed", "state": state, "reason": error},
        )
        return False
    return True


async def keep_alive() -> None:
    """Say that the event loop runs, twice in the time that ``WatchdogSec`` allows; until
    cancelled. Ends at once where systemd does not watch."""
    microseconds = os.environ.get("WATCHDOG_USEC", "")
    if not microseconds.isdigit() or not int(microseconds):
        return
    while notify("WATCHDOG=1"):
        await asyncio.sleep(int(microseconds) / 2_000_000)
