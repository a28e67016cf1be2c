"""What a sensor remembers between its ticks, and when the daemon starts again."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict


class SensorCursor(BaseModel):
    """Base of all cursors; every field has a default."""

    model_config = ConfigDict(frozen=True)

    @classmethod
    def read(cls, text: str | None) -> Self:
        """The remembered one; a fresh one where there is none, or one that is not ours."""
        try:
            return cls.model_validate_json(text) if text else cls()
        except ValueError:
            return cls()
