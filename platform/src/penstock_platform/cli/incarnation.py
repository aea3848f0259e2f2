"""``--incarnation``: chains of topics that were recreated since stay within reach."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from penstock_platform.cli.console import CommandError
from penstock_platform.connections import Connections
from penstock_platform.kafka.model import TopicRef
from penstock_platform.windows.store import WindowStore

EVERY = "all"


def incarnation_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--incarnation",
        default=None,
        metavar="TOPIC_ID|all",
        help="A topic id that the name had before, or all; default: the broker's current one.",
    )(command)


def chains_of(penstock: Connections, topic: str, incarnation: str | None) -> list[TopicRef]:
    """The chains that are meant, oldest first; the broker need not have those topics any more.

    Raises CommandError naming the topic ids that there are.
    """
    if incarnation is None:
        return [penstock.kafka.ref(topic)]
    cluster_id = penstock.kafka.cluster_id()
    known = WindowStore.of(penstock).incarnations(cluster_id, topic)
    if incarnation == EVERY and known:
        return [TopicRef(cluster_id, topic, topic_id) for topic_id in known]
    if incarnation in known:
        return [TopicRef(cluster_id, topic, incarnation)]
    raise CommandError(
        f"{topic} has no chain of windows of {incarnation!r}",
        fix=f"its topic ids, oldest first: {', '.join(known) or 'none'}",
    )
