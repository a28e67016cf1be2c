"""The pipeline file as pydantic models. Owned by the engine; Dagster's component shows them, nothing more."""
