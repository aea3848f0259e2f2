"""Fixtures of this folder's tests, by their names."""

from stage import ready, stage  # noqa: F401
