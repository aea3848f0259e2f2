"""Fixtures of this folder's tests, by their names."""

from group_cli import cli, group, member, topic  # noqa: F401
