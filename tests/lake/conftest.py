"""Fixtures of this folder's tests, by their names."""

from desk import desk  # noqa: F401
