"""DescribeLogDirs: directories of logs, and what partitions take there (KIP-113)."""

from penstock_broker.wire.schema import BOOL, INT16, INT32, INT64, STRING, Struct, array, field

API_KEY = 35
VERSIONS = range(1, 5)
FLEXIBLE_FROM = 2


class DescribableLogDirTopic(Struct):
    topic: str = field(STRING)
    partitions: list[int] = array(INT32)


class DescribeLogDirsRequest(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    """`topics` null asks for all of them."""

    topics: list[DescribableLogDirTopic] | None = array(
        DescribableLogDirTopic, nullable_since=0, default=None
    )


class DescribeLogDirsPartition(Struct):
    """Sizes in bytes; the lag in offsets, of a future replica behind the current one."""

    partition_index: int = field(INT32)
    partition_size: int = field(INT64)
    offset_lag: int = field(INT64, default=0)
    is_future_key: bool = field(BOOL, default=False)


class DescribeLogDirsTopic(Struct):
    name: str = field(STRING)
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


class DescribeLogDirsResult(Struct):
    """One directory; `total_bytes` and `usable_bytes` are its volume's (KIP-827)."""

    error_code: int = field(INT16, default=0)
    log_dir: str = field(STRING)
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic, default=())
    total_bytes: int = field(INT64, since=4, default=-1)
    usable_bytes: int = field(INT64, since=4, default=-1)


class DescribeLogDirsResponse(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, since=3, default=0)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult, default=())
