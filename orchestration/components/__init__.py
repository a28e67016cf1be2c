"""The component types that a `defs.yaml` may name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestration.components.pipeline import KafkaPipeline

__all__ = ["KafkaPipeline"]


def __getattr__(name: str) -> Any:
    """Not before somebody asks: `status` needs a module of this package, and none of the engine's writers."""
    if name == "KafkaPipeline":
        from orchestration.components.pipeline import KafkaPipeline

        return KafkaPipeline
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Dagster looks here for component types."""
    return __all__
