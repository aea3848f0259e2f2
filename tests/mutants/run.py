"""``make mutants``: which small changes to the code that decides would no test notice?

    python tests/mutants/run.py [--jobs N] [--list] [MODULE ...]

Each mutant (``mutations.py``) is tried in a forked process (``trying.py``) with the tests that
``SUBJECTS`` names, as far as they reach its line, until one fails. No file is changed. Survivors
that ``survivors.md`` gives a reason for count as equivalent. Exit code 1 if fewer than 95 % of the
others were killed.

Why not mutmut or cosmic-ray: mutmut leaves out properties and whole statements, of which
``books.py`` is made, and changes the words of messages instead; cosmic-ray edits the files in place
and starts pytest again for each of some 2,500 mutants.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from mutations import mutants, names_of
from subjects import ROOT, Subject
from trying import survivors_of

SURVIVORS = Path(__file__).with_name("survivors.md")
GOAL = 0.95
PLATFORM = "platform/src/penstock_platform"
CLIENT = "broker/client/src/penstock_client"
# The nearest tests first: a mutant ends at the first that fails.
SUBJECTS: dict[str, tuple[str, ...]] = {
    f"{PLATFORM}/{module}.py": tuple(f"tests/{name}.py" for name in tests)
    for module, tests in {
        "ranges": ("test_ranges",),
        "windows/model/window": ("windows/test_window_plan", "windows/test_window_store"),
        "windows/model/truncation": ("windows/test_truncation",),
        "reconciliation/model/equations": (
            "reconciliation/test_reconcile",
            "reconciliation/test_table_views",
        ),
        "reconciliation/model/books": (
            "reconciliation/test_books_object",
            "reconciliation/test_book_words",
            "reconciliation/test_acceptance",
            "reconciliation/test_reconcile",
        ),
        "reconciliation/model/recovery": ("reconciliation/test_rerun_source",),
        "reconciliation/model/recreation": ("reconciliation/test_recreation",),
        "retention/model/plan": ("retention/test_retention_plan",),
        "retention/model/log": ("retention/test_retention_plan",),
        "retention/model/proof": (
            "retention/test_retention_plan",
            "reconciliation/test_acceptance",
        ),
        "alerts/model/incidents": ("alerts/test_alert_texts", "alerts/test_incidents"),
        "alerts/model/incident_states": ("alerts/test_incident_rules", "alerts/test_incidents"),
        "alerts/model/chain_health": ("alerts/test_chain_problems", "alerts/test_chain_health"),
    }.items()
}
SUBJECTS[f"{CLIENT}/ledger.py"] = ("tests/client/test_ledger.py",)
APPENDS = (
    "log/test_log_append_read",
    "log/test_log_staged",
    "log/test_log_rolling",
    "log/test_log_times",
    "log/test_log_reading",
    "log/test_log_failures",
    "log/test_log_flush_steps",
    "log/test_log_group_flush",
    "log/test_log_producers",
    "log/test_log_recovery",
    "log/test_epoch_recovery",
    "transactions/test_txn_log",
)
SUBJECTS |= {
    f"broker/src/penstock_broker/{module}.py": tuple(f"tests/broker/{name}.py" for name in tests)
    for modules, tests in {
        (
            "groups/group_state",
            "groups/replies",
        ): (
            "groups/test_group_joins",
            "groups/test_group_rebalances",
            "groups/test_group_syncs",
            "groups/test_static_members",
            "groups/test_group_sessions",
            "groups/test_group_commits",
            "groups/test_group_state",
            "groups/test_coordinator",
            "groups/test_group_properties",
        ),
        ("groups/rebalance",): ("groups/test_rebalance",),
        ("groups/members",): ("groups/test_members",),
        ("groups/states", "groups/store", "groups/subscription"): ("groups/test_subscription",),
        ("groups/roster",): ("groups/test_roster",),
        (
            "groups/coordinator",
            "groups/committed_offsets",
            "groups/directory",
            "groups/offsets",
            "groups/pending_offsets",
            "groups/footprint",
            "replication/internal_topic",
        ): (
            "groups/test_pending_offsets",
            "groups/test_coordinator",
            "groups/test_coordinator_members",
            "groups/test_group_offsets",
            "limits/test_footprint",
            "transactions/test_txn_offsets",
            "transactions/test_txn_refusals",
        ),
        ("log/aborted_transactions",): ("log/test_aborted_transactions",),
        ("log/open_transactions",): ("log/test_open_transactions",),
        ("log/isolation",): ("log/test_isolation",),
        ("log/producer_state",): (
            "log/test_producer_state",
            "log/test_log_producers",
            "limits/test_producer_bound",
            "transactions/test_txn_log",
        ),
        ("log/reading",): ("log/test_log_reading",),
        ("log/leader_epochs",): ("log/test_leader_epochs",),
        ("log/rolling",): ("log/test_roll_rules", "log/test_log_staged"),
        ("log/appender",): ("log/test_appender", *APPENDS),
        ("log/segment",): ("log/test_segment", "log/test_segment_places"),
        ("log/log",): (
            "log/test_log_owner",
            "log/test_log_offline",
            "log/test_checkpoint_writing",
            "log/test_appender",
            *APPENDS,
            "log/test_log_delete_records",
            "log/test_log_upgrade",
            "log/test_log_cleaner",
        ),
        ("log/lookup",): ("log/test_lookup_rules", "log/test_log_times"),
        ("log/segments",): ("log/test_segments", "transactions/test_txn_log"),
        ("log/epoch_file",): ("log/test_epoch_file",),
        ("log/flushing", "log/group_flush"): ("log/test_flushing",),
        ("log/slice",): ("log/test_slices",),
        ("log/markers",): ("log/test_markers",),
        ("log/record_rules", "wire/batch_pattern"): (
            "log/test_record_rules",
            "log/test_batch_patterns",
        ),
        ("wire/record_walk",): ("wire/test_walk_rules", "wire/test_walk_shapes"),
        ("api/produce_frame",): ("api/test_produce_frame",),
        ("log/retention", "log/trash"): ("log/test_log_retention_plan", "log/test_retention_rules"),
        ("log/segment_checkpoint",): (
            "log/test_log_checkpoints",
            "log/test_checkpoint_writing",
            "log/test_checkpoint_crashes",
        ),
        ("log/scan",): ("log/test_scan",),
        ("log/offset_index", "log/time_index", "log/index_file"): ("log/test_index_files",),
        ("log/recovery_report",): ("log/test_recovery_report",),
        ("log/recovery",): (
            "log/test_recovery_limits",
            "log/test_log_recovery",
            "log/test_epoch_recovery",
            "log/test_log_checkpoints",
            "log/test_checkpoint_writing",
            "log/test_log_kills",
            "log/test_log_producers",
            "log/test_log_rolling",
            "log/test_log_upgrade",
            "log/test_log_check",
            "log/test_log_append_read",
            "transactions/test_txn_log",
        ),
        ("log/compaction",): ("log/test_batch_filter", "log/test_compaction_rules"),
        ("log/swap",): ("log/test_swap",),
        ("log/cleaner",): ("log/test_cleaner_rules",),
        ("log/compaction_worker",): ("log/test_compaction_work",),
        ("log/saving",): ("log/test_saving",),
        ("log/data_directory",): ("log/test_data_directory",),
        ("log/manager",): ("log/test_manager", "log/test_manager_deletion"),
        ("log/checkpoint", "log/kept_offsets"): ("log/test_checkpoint_files",),
        ("log/open_files",): ("log/test_open_files",),
        ("log/check",): ("log/test_check_rules",),
        ("log/dump",): ("log/test_dump",),
        ("groups/offset_records",): ("groups/test_offset_records", "groups/test_coordinator"),
        ("transactions/transaction",): ("transactions/test_transaction_rules",),
        (
            "transactions/states",
            "transactions/coordinator",
            "transactions/markers",
            "transactions/topic",
        ): (
            "transactions/test_txn_coordinator",
            "transactions/test_txn_refusals",
            "transactions/test_txn_markers",
            "transactions/test_txn_formats",
        ),
        ("security/scram", "security/sasl", "security/users"): ("security/test_scram",),
        ("security/acls", "security/authorizer"): (
            "security/test_acl_rules",
            "security/test_authorizer",
        ),
        ("transactions/transaction_records",): ("transactions/test_txn_formats",),
        ("security/principals",): ("security/test_principals",),
        ("security/acl_store", "security/scram_store"): ("security/test_security_stores",),
        ("security/authentication", "security/session"): ("security/test_authentication",),
    }.items()
    for module in modules
}


@dataclass(frozen=True, slots=True)
class Score:
    """What came of the mutants of one module; ``survivors`` are those without a reason."""

    path: str
    mutants: int
    equivalent: int
    survivors: int
    seconds: float

    @property
    def counted(self) -> int:
        return self.mutants - self.equivalent

    @property
    def share(self) -> float:
        return 1 - self.survivors / self.counted if self.counted else 1.0

    def __str__(self) -> str:
        return (
            f"{self.path}: {self.mutants} mutants, {self.counted - self.survivors} killed,"
            f" {self.equivalent} equivalent, {self.survivors} survived: {self.share:.1%},"
            f" {self.seconds:.0f} s"
        )


def excused() -> dict[str, set[str]]:
    """By module, the mutants that survivors.md gives a reason for."""
    rows: dict[str, set[str]] = defaultdict(set)
    path = ""
    for line in SURVIVORS.read_text().splitlines():
        if line.startswith("## "):
            path = line.removeprefix("## ").strip()
        elif line.startswith("- "):
            rows[path].add(line.removeprefix("- ").split(" — ")[0].strip())
    return rows


def try_module(subject: Subject, jobs: int, known: set[str]) -> Score:
    """Try all mutants of a module, and print those that survive without a reason."""
    began = time.monotonic()
    found = list(mutants(subject.source))
    names = dict(zip(found, names_of(found), strict=True))
    allowed, survived = set(), 0
    for mutant in survivors_of(subject, found, jobs):
        if names[mutant] in known:
            allowed.add(names[mutant])
            continue
        survived += 1
        say(f"  survived {subject.path}:{mutant.line}", f"- {names[mutant]}")
    for name in sorted(known - allowed):
        say(f"  survivors.md names what does not survive: {name}")
    return Score(subject.path, len(found), len(allowed), survived, time.monotonic() - began)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", help="paths or file names: books.py (all of them)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--list", action="store_true", help="print the mutants, run nothing")
    options = parser.parse_args()
    os.chdir(ROOT)
    wanted = {p for p in SUBJECTS if {p, Path(p).name} & set(options.modules)} or set(SUBJECTS)
    if unknown := set(options.modules) - wanted - {Path(path).name for path in wanted}:
        parser.error(f"{', '.join(sorted(unknown))}: not one of {', '.join(SUBJECTS)}")
    known, scores = excused(), []
    for path, tests in SUBJECTS.items():
        if path not in wanted:
            continue
        subject = Subject(path, tests)
        if options.list:
            say(*(f"{path}:{m.line}: {m.before}  →  {m.after}" for m in mutants(subject.source)))
            continue
        scores.append(try_module(subject, options.jobs, known.get(path, set())))
        say(str(scores[-1]))
    if options.list:
        return 0
    total = Score(
        f"{len(scores)} modules",
        sum(score.mutants for score in scores),
        sum(score.equivalent for score in scores),
        sum(score.survivors for score in scores),
        sum(score.seconds for score in scores),
    )
    say(str(total))
    return 0 if total.share >= GOAL else 1


def say(*lines: str) -> None:
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
