"""Dropping a pipeline's tables with their committed states, so that it starts again. Only for the local services."""

from __future__ import annotations

from jobs.pipeline import Pipeline


def forget_tables(pipeline: Pipeline) -> bool:
    """Drops the intermediate table and every destination table; true if there was one."""
    found = [pipeline.intermediate.catalog.drop(pipeline.intermediate.identifier)]
    for destination in pipeline.destinations():
        found += [destination.drop(), destination.drop_state()]
    return any(found)
