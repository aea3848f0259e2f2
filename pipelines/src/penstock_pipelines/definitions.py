"""The code location: everything under ``defs/``, loaded by Dagster's own component loader."""

from pathlib import Path

import dagster as dg

defs = dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
