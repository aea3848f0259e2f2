"""Which windows count as not balanced, for exit codes."""

from __future__ import annotations

from typing import Any

from penstock_platform.cli.project import Connections
from penstock_platform.cli.topic import declarations
from penstock_platform.reconciliation.model.books import GOOD_STATES, WindowState
from penstock_platform.topics.model.declaration import AUDIT_TOPIC


def unbalanced(
    penstock: Connections, topic: str, rows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The windows that do not balance, as the topic's declaration has it (``accept_unaudited``)."""
    wrong = [row for row in rows if WindowState(row["state"]) not in GOOD_STATES]
    if any(row["state"] == WindowState.UNAUDITED for row in wrong):
        spec = (declarations(penstock) or {}).get(topic)
        # The audit topic has no auditor of its own: its windows never have evidence.
        if topic == AUDIT_TOPIC or (spec is not None and spec.audit.accept_unaudited):
            wrong = [row for row in wrong if row["state"] != WindowState.UNAUDITED]
    return wrong
