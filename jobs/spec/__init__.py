"""The pipeline file as pydantic models. Owned by the engine; Dagster's component shows them, nothing more."""

from jobs.spec.pipeline import PipelineSpec, load_pipeline_file

__all__ = ["PipelineSpec", "load_pipeline_file"]
