"""The code location: everything under ``defs/``, loaded by Dagster's own component loader."""

from pathlib import Path

import dagster as dg

# Steps of a run in one process: on one machine a process a step costs more than it does.
defs = dg.Definitions.merge(
    dg.load_from_defs_folder(path_within_project=Path(__file__).parent),
    dg.Definitions(executor=dg.in_process_executor),
)
