"""What a cluster refuses, or does not answer."""

from __future__ import annotations


class ClusterError(RuntimeError):
    """The cluster did not do what was asked: names it, the call and the cause."""


class UnknownTopicError(ClusterError):
    """The cluster has no topic of that name."""


class UnknownGroupError(ClusterError):
    """The cluster has no consumer group of that name."""
