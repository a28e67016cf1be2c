"""What a sensor remembers between its ticks, also over restarts of the daemon."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict


class SensorCursor(BaseModel):
    """Base of all cursors; every field has a default."""

    model_config = ConfigDict(frozen=True)

    @classmethod
    def read(cls, text: str | None) -> Self:
        """The cursor of this text; a new one without a text, or if it is not valid."""
        try:
            return cls.model_validate_json(text) if text else cls()
        except ValueError:
            return cls()
