"""Which snapshots may go: a history of landings, damages and expiries against what could heal."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_platform.landing.model.expiry import (
    Commit,
    plan_expiry,
    tag_name,
    takes_away,
)
from penstock_platform.testing.clock import EPOCH

HOUR = timedelta(hours=1)
KEEP, HORIZON, LAST = 6 * HOUR, 100 * HOUR, 3


class Table:
    """A table as Iceberg keeps it: snapshots, tags with an age, and which version of each window a
    snapshot has."""

    def __init__(self):
        self.now = EPOCH
        self.commits = []
        self.rows = {}  # by snapshot: the version of each window
        self.tags = {}
        self.versions = {}  # (window, version): when the window was landed first

    def commit(self, window, version):
        """Another version of a window; None removes its rows."""
        before = self.commits[-1].snapshot_id if self.commits else None
        held = dict(self.rows.get(before, {}))
        snapshot = len(self.rows) + 1
        replaced = held.pop(window, None) is not None
        if version is not None:
            held[window] = version
        self.rows[snapshot] = held
        self.commits.append(Commit(snapshot, before, self.ms(), replaced))
        return snapshot

    def ms(self):
        return round(self.now.timestamp() * 1000)

    def maintain(self, *, commit_between=None):
        plan = plan_expiry(
            self.commits,
            self.tags,
            now=self.now,
            keep=KEEP,
            repair_horizon=HORIZON,
            keep_last=LAST,
        )
        self.tags |= {i: self.ms() for i in plan.tag}
        if commit_between:
            commit_between()
        self.expire(plan)
        return plan

    def expire(self, plan):
        """As Iceberg's expire_snapshots: tags that are too old go first."""
        made = {c.snapshot_id: c.committed_ms for c in self.commits}
        horizon_ms = HORIZON.total_seconds() * 1000
        self.tags = {i: at for i, at in self.tags.items() if self.ms() - made[i] <= horizon_ms}
        kept = {c.snapshot_id for c in self.commits[-LAST:]} | set(self.tags)
        before_ms = plan.before.timestamp() * 1000
        self.commits = [
            c for c in self.commits if c.snapshot_id in kept or c.committed_ms >= before_ms
        ]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_every_version_of_a_window_within_the_horizon_stays_in_some_snapshot(data):
    """Windows are landed, landed again, and damaged; passes come at any time, and commits come
    between a pass's look and its expiry."""
    table = Table()
    landed = {}  # window: when it closed
    versions = []
    for n in range(data.draw(st.integers(5, 60))):
        table.now += HOUR * data.draw(st.integers(0, 8))
        step = data.draw(st.sampled_from(["land", "land", "again", "damage", "pass", "race"]))
        old = data.draw(st.sampled_from(sorted(landed))) if landed else None

        def change(old=old, n=n):
            table.commit(old, f"v{n}")
            versions.append((old, f"v{n}"))

        if step == "land" or old is None:
            landed[n] = table.now
            table.commit(n, f"v{n}")
            versions.append((n, f"v{n}"))
        elif step == "again":
            change()
        elif step == "damage":
            table.commit(old, None)
        else:
            table.maintain(commit_between=change if step == "race" else None)
        held = {(w, v) for c in table.commits for w, v in table.rows[c.snapshot_id].items()}
        for window, version in versions:
            if table.now - landed[window] <= HORIZON:
                assert (window, version) in held


def test_snapshots_that_hold_nothing_of_their_own_go():
    table = Table()
    for n in range(50):
        table.commit(n, "landed")
        table.now += HOUR
    plan = table.maintain()
    assert plan.tag == ()
    assert plan.expirable == 44
    assert [c.snapshot_id for c in table.commits] == [45, 46, 47, 48, 49, 50]
    assert table.maintain().expirable == 0


def test_what_was_replaced_is_kept_with_the_commit_that_replaced_it_and_goes_after_the_horizon():
    table = Table()
    table.commit("w", "good")
    table.now += HOUR
    other = table.commit("x", "landed")
    table.now += HOUR
    damage = table.commit("w", "bad")
    for n in range(8):
        table.now += HOUR
        table.commit(n, "landed")
    plan = table.maintain()
    assert plan.tag == (other, damage)
    table.now += 50 * HOUR
    assert table.maintain().tag == (), "they have their tags"
    assert {other, damage} <= {c.snapshot_id for c in table.commits}
    table.now += 60 * HOUR
    table.maintain()
    assert not {other, damage} & {c.snapshot_id for c in table.commits}
    assert table.maintain().tag == ()


def test_the_last_snapshots_are_kept_whatever_their_age():
    table = Table()
    for n in range(5):
        table.commit(n, "landed")
    table.now += 30 * HOUR
    table.maintain()
    assert [c.snapshot_id for c in table.commits] == [3, 4, 5]


@pytest.mark.parametrize(
    "operation,summary,taken",
    [
        ("append", {"deleted-data-files": "1"}, False),
        ("replace", {"deleted-data-files": "4"}, False),
        ("delete", {}, True),
        ("overwrite", {"changed-partition-count": "1", "added-data-files": "2"}, False),
        ("overwrite", {"changed-partition-count": "0"}, False),
        ("overwrite", {"changed-partition-count": "1", "deleted-data-files": "2"}, True),
        ("overwrite", {"changed-partition-count": "1", "added-delete-files": "1"}, True),
        ("overwrite", {"added-data-files": "2"}, True),
        ("", {}, True),
    ],
)
def test_what_takes_rows_away_is_read_from_the_summary(operation, summary, taken):
    assert takes_away(operation, summary) is taken


def test_a_tag_names_its_snapshot():
    assert tag_name(7) == "penstock-heal-7"
