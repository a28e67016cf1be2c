"""What Dagster loads: everything in `defs/`, and what pipelines share."""

from pathlib import Path

import dagster as dg

import batchmerge


@dg.definitions
def defs() -> dg.Definitions:
    return batchmerge.with_shared(dg.load_from_defs_folder(path_within_project=Path(__file__).parent))
