"""Partitions with their leader, high watermark and replicas."""
