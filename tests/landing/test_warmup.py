"""The warm-up does what a landing does, and leaves nothing behind."""

from __future__ import annotations

from typing import Any

import pytest

from penstock_platform.landing.warmup import NAMESPACE, warm_up

pytestmark = [pytest.mark.services, pytest.mark.xdist_group("lake")]


def test_warming_up_twice_leaves_no_table(penstock: Any) -> None:
    spark = penstock.spark.session()
    warm_up(spark)
    warm_up(spark)
    assert spark.sql(f"SHOW TABLES IN {NAMESPACE}").count() == 0
