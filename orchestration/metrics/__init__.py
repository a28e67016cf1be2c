"""Metrics: what an operator's monitoring asks about the pipelines, from their tables and from Dagster's events."""
