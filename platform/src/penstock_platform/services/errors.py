"""One exception for everything a person can mend: what, where, how."""

from __future__ import annotations


class ServiceError(RuntimeError):
    """One or two sentences for the person at the keyboard; printed without a traceback."""
