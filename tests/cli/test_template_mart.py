"""The mart of a new project runs before anything was produced, and says nothing is wrong."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg

from penstock_platform import cli

ROOT = Path(cli.__file__).parent / "template"
TEMPLATE = ROOT / "src" / "package" / "defs" / "marts" / "revenue.py.tmpl"


def load_mart() -> Any:
    loader = SourceFileLoader("template_revenue", str(TEMPLATE))
    spec = importlib.util.spec_from_loader("template_revenue", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    return module


def test_nothing_landed_is_no_error() -> None:
    """Seen before: a new project raised an ERROR every five minutes until its first record."""
    catalog = SimpleNamespace(tableExists=lambda _name: False)
    session = SimpleNamespace(catalog=catalog)
    penstock = SimpleNamespace(spark=SimpleNamespace(session=lambda: session))
    instance = dg.DagsterInstance.ephemeral()
    module = load_mart()
    done = dg.materialize(
        [module.revenue],
        instance=instance,
        resources={"penstock": dg.ResourceDefinition.hardcoded_resource(penstock)},
    )
    assert done.success
    assert not done.asset_materializations_for_node("lake__marts__revenue")
