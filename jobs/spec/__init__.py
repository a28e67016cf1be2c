"""The pipeline file as pydantic models. They belong to the engine; Dagster's component only uses them."""
