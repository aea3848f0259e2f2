"""The settings of transactions."""

from __future__ import annotations

from dataclasses import dataclass

from penstock_broker.config.security_settings import SecuritySettings
from penstock_broker.config.table import ConfigType, at_least, setting


@dataclass(frozen=True, slots=True)
class TransactionSettings(SecuritySettings):
    """The settings of the transaction coordinator and its internal topic."""

    transaction_abort_interval_ms: int = setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        ConfigType.INT,
        10_000,
        "How often transactions are checked for their timeout.",
        check=at_least(1),
    )
    transaction_max_timeout_ms: int = setting(
        "transaction.max.timeout.ms",
        ConfigType.INT,
        900_000,
        "The longest transaction timeout that a producer may ask for.",
        check=at_least(1),
    )
    transaction_verification_enable: bool = setting(
        "transaction.partition.verification.enable",
        ConfigType.BOOLEAN,
        True,
        "Refuse records of a transaction in partitions that have not been added to it.",
    )
    transaction_remove_interval_ms: int = setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        ConfigType.INT,
        3_600_000,
        "How often transactional ids are checked for expiry.",
        check=at_least(1),
    )
    transaction_log_min_isr: int = setting(
        "transaction.state.log.min.isr",
        ConfigType.INT,
        1,
        "min.insync.replicas of __transaction_state.",
        check=at_least(1),
    )
    transaction_log_num_partitions: int = setting(
        "transaction.state.log.num.partitions",
        ConfigType.INT,
        50,
        "Partitions of __transaction_state; fixed once the topic exists.",
        check=at_least(1),
    )
    transaction_log_replication_factor: int = setting(
        "transaction.state.log.replication.factor",
        ConfigType.INT,
        1,
        "Replicas of __transaction_state.",
        check=at_least(1),
    )
    transaction_log_segment_bytes: int = setting(
        "transaction.state.log.segment.bytes",
        ConfigType.INT,
        100 << 20,
        "segment.bytes of __transaction_state.",
        check=at_least(1),
    )
    transactional_id_expiration_ms: int = setting(
        "transactional.id.expiration.ms",
        ConfigType.INT,
        604_800_000,
        "How long a transactional id that is not used is kept.",
        check=at_least(1),
    )
