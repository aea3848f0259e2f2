"""Fixtures of this folder's tests, by their names."""

from freezing import world  # noqa: F401
