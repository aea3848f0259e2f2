"""Names that the components share with the command line, free of Dagster's imports."""

from __future__ import annotations

from penstock_platform.topics.model.declaration import table_part

TOPIC_TAG = "penstock/topic"
# The declared topics that a run creates.
TOPICS_TAG = "penstock/topics"
WINDOW_TAG = "penstock/window"
WINDOW_ID_TAG = "penstock/window_id"
# What a run lands: "<topic id>/<partition key>".
LANDING_TAG = "penstock/landing"
# How the newest step of a landing ended: landing/model/retries.py.
OUTCOME_TAG = "penstock/outcome"
# Who lands: landing/model/leases.py. Hidden in the UI by its dot.
LEASE_TAG = ".dagster/penstock_lease"


def landing_job(topic: str) -> str:
    """The job whose runs land one window of the topic each."""
    return f"land_{table_part(topic)}"


def evidence_job(topic: str) -> str:
    """The job that reads a topic's evidence again."""
    return f"evidence_{table_part(topic)}"
