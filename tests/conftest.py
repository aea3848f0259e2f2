"""How the suite is spread over processes: a file's tests stay together, so that what they share
(a broker, a Spark, a whole stack) is started once. ``xdist_group`` on a test or file overrides."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["penstock_services.testing.fixtures", "real_services"]

# No property asserts speed: an example may take as long as a busy machine needs.
settings.register_profile(
    "any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any-machine")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.name))
