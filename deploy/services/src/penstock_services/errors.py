"""One exception for everything a user can fix: what, where, how."""

from __future__ import annotations


class ServiceError(RuntimeError):
    """One or two sentences for the person at the keyboard; printed without a traceback."""
