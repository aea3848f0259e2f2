"""What goes wrong with the lake's tables. Not in ``lake``: importing this loads no pyiceberg."""

from __future__ import annotations


class LakeError(RuntimeError):
    """A table that cannot be read: names table, catalog and cause."""


class MissingTableError(LakeError):
    """No such table yet: nothing has been landed in it."""


class StoreError(RuntimeError):
    """The object store could not be asked: names the object and the cause. Proves nothing."""


class FilterError(LakeError):
    """A filter that cannot be read, or does not fit the table's columns."""
