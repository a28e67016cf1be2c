"""The component types that a `defs.yaml` may name."""

from orchestration.components.pipeline import KafkaPipeline

__all__ = ["KafkaPipeline"]
