"""Names that the components share with the command line, free of Dagster's imports."""

from __future__ import annotations

from penstock_platform.domain.topics import table_part

TOPIC_TAG = "penstock/topic"
WINDOW_TAG = "penstock/window"
WINDOW_ID_TAG = "penstock/window_id"


def landing_job(topic: str) -> str:
    """The job whose runs land one window of the topic each."""
    return f"land_{table_part(topic)}"


def evidence_job(topic: str) -> str:
    """The job that hears a topic's producers again."""
    return f"evidence_{table_part(topic)}"
