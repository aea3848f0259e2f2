"""Every name that the platform gives to something of a Dagster project, and every tag of its runs.

The one place where they are made, free of Dagster's imports: the command line knows them too. A
project has jobs, sensors and schedules of its own, so each name begins with a prefix.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock_platform.topics.model.declaration import table_part

PREFIX = "penstock_"

# On every run of a job of the platform: which job (without prefix and topic), of which cluster.
JOB_TAG = "penstock/job"
CLUSTER_TAG = "penstock/cluster"
TOPIC_TAG = "penstock/topic"
# The declared topics that a run creates.
TOPICS_TAG = "penstock/topics"
WINDOW_TAG = "penstock/window"
WINDOW_ID_TAG = "penstock/window_id"
# What a run lands: "<topic id>/<partition key>".
LANDING_TAG = "penstock/landing"
# How the newest step of a landing ended: landing/model/retries.py.
OUTCOME_TAG = "penstock/outcome"
# What a run of the heal sensor lands again: "<topic id>/<partition key>@<sound until>".
HEAL_TAG = "penstock/heal"
# Who lands: landing/model/leases.py. Hidden in the UI by its dot.
LEASE_TAG = ".dagster/penstock_lease"

# Values of the tag `penstock/job`.
LAND, EVIDENCE = "land", "evidence"
TOPICS, EMPTY_WINDOWS = "topics", "prove_empty_windows"
REVERIFY, RETENTION, OBSERVE, QUALITY = "reverify", "retention", "observe", "quality"
SNAPSHOTS, ORPHAN_FILES = "snapshots", "orphan_files"


@dataclass(frozen=True, slots=True)
class Names:
    """The names in one Dagster project; ``prefix`` is the PlatformComponent's."""

    prefix: str = PREFIX

    def of(self, name: str) -> str:
        """The name of a job, schedule, sensor or op that there is once."""
        return f"{self.prefix}{name}"

    def landing_job(self, topic: str) -> str:
        """The job whose runs land one window of the topic each."""
        return self.of(f"{LAND}_{table_part(topic)}")

    def evidence_job(self, topic: str) -> str:
        """The job that reads the monitoring events of a topic's producers again."""
        return self.of(f"{EVIDENCE}_{table_part(topic)}")


def job_tags(job: str, cluster: str, topic: str = "") -> dict[str, str]:
    """The tags of a job of the platform and of all its runs."""
    tags = {JOB_TAG: job, CLUSTER_TAG: cluster}
    return {**tags, TOPIC_TAG: topic} if topic else tags
