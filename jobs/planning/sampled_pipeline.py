"""A pipeline with what its newest records bring where the file leaves it open: key, columns and tables."""

from __future__ import annotations

from dataclasses import replace

from jobs.landing.sample import keyless, sampled_columns, sampled_key, sampled_names
from jobs.pipeline import Pipeline
from jobs.spec.added_columns import Additions, adds_columns
from jobs.spec.new_tables import Named
from jobs.spec.open_key import key_is_open
from jobs.spec.pipeline import PipelineSpec


def adopt_sampled_key(pipeline: Pipeline) -> bool:
    """Has the pipeline go on with the key of the newest records, if its key is open; True if so.

    Raises:
        ConfigurationError: they have none, or one that cannot be the tables'.
    """
    if not key_is_open(pipeline.spec):
        return False
    found = _with_key(pipeline)
    if found is None:
        raise keyless(pipeline.name)
    pipeline.adopt(found)
    return True


def with_sampled_columns(pipeline: Pipeline) -> tuple[Pipeline, Additions]:
    """The pipeline as it would be with the columns and the key that the newest records bring; for `plan`."""
    keyed = (_with_key(pipeline) if key_is_open(pipeline.spec) else None) or pipeline.spec
    if not adds_columns(keyed):
        return replace(pipeline, spec=keyed), Additions(keyed)
    found = sampled_columns(keyed, pipeline.kafka, pipeline.topics(), pipeline.intermediate.registries, pipeline.taking)
    return replace(pipeline, spec=found.spec), found


def with_sampled_names(pipeline: Pipeline, batch: int) -> Pipeline:
    """The pipeline with the tables that the newest records name too, as if this batch had them; for `plan`."""
    known = pipeline.names
    names = sampled_names(pipeline.spec, pipeline.kafka, pipeline.topics(), pipeline.intermediate.registries, known)
    made = replace(pipeline)
    made.names = {**known, **{name: Named(name, batch) for name in names}}
    return made


def _with_key(pipeline: Pipeline) -> PipelineSpec | None:
    registries = pipeline.intermediate.registries
    return sampled_key(pipeline.spec, pipeline.kafka, pipeline.topics(), registries, pipeline.taking)
