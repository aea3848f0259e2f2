"""Which partition of an internal topic looks after a name: the same that Kafka would choose."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=4_096)
def java_hash(text: str) -> int:
    """``String.hashCode`` of Java, over UTF-16 code units, as an i32."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        value = (31 * value + (data[at] << 8 | data[at + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def partition_for(name: str, partitions: int) -> int:
    """Kafka's choice: abs(hash) modulo the partitions, with Java's idea of abs."""
    value = java_hash(name)
    return (0 if value == -(1 << 31) else abs(value)) % max(1, partitions)
