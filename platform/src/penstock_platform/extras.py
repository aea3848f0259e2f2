"""Libraries that not every project needs: extras of the distribution, imported when they are used.

Reading offsets, freezing windows and proving them needs none of them.
"""

from __future__ import annotations

from importlib.util import find_spec

DISTRIBUTION = "penstock-platform"
# The module that is imported → the extra that brings it, and what it is for.
EXTRAS = {
    "pyspark": ("spark", "landing and reading of tables by Spark"),
    "great_expectations": ("quality", "suites of expectations"),
    "apprise": ("alerts", "alerts.urls"),
}


class MissingExtraError(ImportError):
    """A library is not installed: names the extra that brings it."""


def require_extra(module: str) -> None:
    """Raises MissingExtraError where the module is not installed."""
    if find_spec(module) is None:
        extra, purpose = EXTRAS[module]
        raise MissingExtraError(
            f"{purpose} needs {module}, which is not installed: "
            f"pip install '{DISTRIBUTION}[{extra}]'",
            name=module,
        )
