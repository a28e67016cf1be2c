"""The component types that a `defs.yaml` may name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestration.components.pipeline import KafkaPipeline

__all__ = ["KafkaPipeline"]


def __getattr__(name: str) -> Any:
    """Imports the component at its first use: `status` needs another module of this package, and not the engine."""
    if name == "KafkaPipeline":
        from orchestration.components.pipeline import KafkaPipeline

        return KafkaPipeline
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Dagster finds component types by it."""
    return __all__
