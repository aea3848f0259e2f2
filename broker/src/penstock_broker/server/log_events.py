"""The names of everything that the broker logs, and of what each line is made of.

The code writes plain log calls; here each gets the name and the field names that JSON output shows
and that alerts may rely on. A row's key is the module that logs (below ``penstock_broker``) and its
format; a test holds the table against the code. A call whose only argument is a mapping names its
event and fields itself.
"""

from __future__ import annotations

Names = tuple[str, tuple[str, ...]]


def _rows(module: str, *rows: tuple[str, str, str]) -> dict[tuple[str, str], Names]:
    return {(module, text): (event, tuple(fields.split())) for text, event, fields in rows}


_PLACE = "topic partition"

EVENTS: dict[tuple[str, str], Names] = {
    **_rows(
        "api.broker_configs",
        (
            "settings that were changed while running are ignored: %s",
            "broker_configs_ignored",
            "reason",
        ),
    ),
    **_rows(
        "log.saving",
        (
            "%s may hold a change that was refused: %s",
            "metadata_unsure",
            "path reason",
        ),
    ),
    **_rows(
        "groups.coordinator",
        (
            "group %s is %s in generation %d with %d members%s%s",
            "group_changed",
            "group state generation members joined left",
        ),
        ("group %s is not stored: %s", "group_not_stored", "group reason"),
        ("group %s does not expire yet: %s", "group_not_expired", "group reason"),
    ),
    **_rows(
        "groups.offsets",
        ("%s-%d at %d: %s", "group_record_unreadable", f"{_PLACE} offset reason"),
    ),
    **_rows(
        "log.cleaner",
        ("%s is compacted up to %d: %d bytes of it", "log_compacted", "directory end bytes"),
        ("%s remains until the next start: %s", "file_remains", "path reason"),
        ("%s is not compacted: %s", "log_not_compacted", "directory reason"),
    ),
    **_rows(
        "log.epoch_file",
        ("%s: %s; reading the epochs from the batches", "epochs_rebuilt", "directory reason"),
        ("%s is damaged: %s", "segment_damaged", "path reason"),
    ),
    **_rows(
        "log.isolation",
        ("rebuilding the indexes of aborted transactions: %s", "index_rebuilt", "reason"),
    ),
    **_rows(
        "log.log",
        ("%s is offline: %s", "log_offline", "directory reason"),
        ("%s: cannot append: %s", "append_failed", "directory reason"),
    ),
    **_rows(
        "log.manager",
        ("%s: all logs are checked from their beginning", "checkpoint_damaged", "reason"),
        ("%s", "log_failed", "reason"),
    ),
    **_rows(
        "log.recovery",
        (
            "%s-%d: cut at offset %d (up to %s, %d bytes): %s in %s at position %d",
            "log_cut",
            f"{_PLACE} first_offset end_offset bytes reason segment position",
        ),
        (
            "%s-%d was closed at %d, but its last segment does not match that: checking it",
            "log_rechecked",
            f"{_PLACE} recovery_point",
        ),
        ("%s cannot be used: %s", "snapshot_damaged", "path reason"),
    ),
    **_rows(
        "log.segment_checkpoint",
        ("%s cannot be written: %s", "checkpoint_not_written", "path reason"),
        ("%s is not used: %s", "checkpoint_not_used", "path reason"),
        ("%s cannot be removed: %s", "checkpoint_not_removed", "path reason"),
    ),
    **_rows(
        "log.retention",
        (
            "%s: retention deletes offsets %d to %d, %d segments (%d by time)",
            "retention",
            "directory first_offset end_offset segments by_time",
        ),
        ("%s", "log_failed", "reason"),
        ("%s: %s", "log_warning", "directory reason"),
    ),
    **_rows(
        "log.segment",
        ("rebuilding the indexes of %s: %s", "index_rebuilt", "path reason"),
        ("the indexes of %s stay in memory: %s", "index_not_saved", "path reason"),
        ("%s: %s", "segment_warning", "path reason"),
        ("%s is damaged: %s; not indexed from there on", "segment_damaged", "path reason"),
    ),
    **_rows(
        "log.swap",
        (
            "%s: replaced segments %d to %d by the compacted one",
            "compaction_finished",
            "directory first_offset end_offset",
        ),
        ("%s is damaged: %s", "cleaner_checkpoint_damaged", "path reason"),
    ),
    **_rows(
        "log.trash",
        ("a deleted file remains until the next start: %s", "file_remains", "reason"),
    ),
    **_rows(
        "replication.internal_topic",
        ("%s-%d cannot be read on: %s", "internal_topic_unreadable", f"{_PLACE} reason"),
        (
            "%s has cleanup.policy=%s: retention deletes what its coordinator has to keep; set it "
            "to compact (kafka-configs.sh --alter --add-config cleanup.policy=compact)",
            "internal_topic_not_compacted",
            "topic policy",
        ),
    ),
    **_rows(
        "replication.replica_manager",
        ("%s-%d is offline: %s", "partition_offline", f"{_PLACE} reason"),
        ("the recovery report cannot be written: %s", "report_failed", "reason"),
        ("logs of the deleted topic %s remain: %s", "file_remains", "topic reason"),
        ("cannot remove logs of %s: %s", "file_remains", "topic reason"),
    ),
    **_rows(
        "server.broker",
        (
            "offsets of the deleted topic %s remain: %s",
            "group_offsets_remain",
            "topic reason",
        ),
    ),
    **_rows(
        "server.credentials",
        ("%s holds passwords and can be read by others", "users_file_open", "path"),
        ("listener %s: %d users in its files", "users_read", "listener users"),
        ("%s: %s; the users stay unchanged", "users_unreadable", "path reason"),
    ),
    **_rows(
        "server.dispatch",
        ("%s v%d failed", "request_failed", "api version"),
        (
            "%s-%d: appended records cannot be announced to consumers",
            "append_not_announced",
            _PLACE,
        ),
    ),
    **_rows("server.http_server", ("an HTTP request failed", "http_request_failed", "")),
    **_rows(
        "server.listeners",
        ("connection from %s refused: %s", "connection_refused", "client reason"),
        ("connection from %s closed: %s", "connection_closed", "client reason"),
        (
            "TLS handshake of %s on %s failed: %s",
            "tls_handshake_failed",
            "client listener reason",
        ),
        (
            "authentication of %s on %s failed (%s): %s",
            "authentication_failed",
            "client listener mechanism reason",
        ),
        (
            "listener %s (%s) on %s:%d, advertised as %s:%d",
            "listening",
            "listener protocol host port advertised_host advertised_port",
        ),
        ("%d more lines about connections", "lines_left_out", "lines"),
    ),
    **_rows(
        "server.long_works",
        ("the work of a closed connection cannot be completed", "follow_up_failed", ""),
    ),
    **_rows("server.process", ("stopping after a signal", "stopping", "")),
    **_rows(
        "server.purgatory",
        ("a request that waited could not be answered", "request_failed", ""),
    ),
    **_rows(
        "server.producer_ids",
        ("no producer ids can be allocated: %s", "producer_ids_not_saved", "reason"),
    ),
    **_rows("server.sasl_gate", ("%s is %s (%s)", "authenticated", "client principal mechanism")),
    **_rows(
        "server.tls",
        ("listener %s has new certificates", "certificates_reloaded", "listener"),
        (
            "%s; listener %s keeps the old ones",
            "certificates_unreadable",
            "reason listener",
        ),
    ),
    **_rows(
        "transactions.coordinator",
        (
            "transactional id %s: aborting a transaction that has been open for %d ms",
            "transaction_timed_out",
            "transactional_id open_ms",
        ),
        (
            "transactional id %s was left in %s: finishing it",
            "transaction_resumed",
            "transactional_id state",
        ),
        (
            "%s-%d: producer %d has a transaction open, of epoch %d, unknown to the coordinator: "
            "aborting it",
            "transaction_orphaned",
            f"{_PLACE} producer_id epoch",
        ),
        (
            "transactional id %s is not finished yet: %s",
            "transaction_unfinished",
            "transactional_id reason",
        ),
        ("it is not aborted yet: %s", "transaction_unfinished", "reason"),
        ("transactional id %s stays: %s", "transactional_id_stays", "transactional_id reason"),
    ),
    **_rows(
        "transactions.markers",
        (
            "%s-%d: marker of producer %d refused: %s",
            "marker_refused",
            f"{_PLACE} producer_id reason",
        ),
        (
            "%s-%d: no marker for producer %d yet: %s",
            "marker_delayed",
            f"{_PLACE} producer_id reason",
        ),
    ),
}
"""(module, format) -> event, names of the arguments"""
