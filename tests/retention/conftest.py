"""Fixtures of this folder's tests, by their names."""

from group_cli import group, topic  # noqa: F401
from stage import ready, stage  # noqa: F401
