"""Dagster runs: their processes, which are about a pipeline, which are dead, and how they are stopped."""
