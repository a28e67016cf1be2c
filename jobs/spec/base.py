"""What all models of a pipeline file share."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class Spec(BaseModel):
    """Unknown keys are errors; values never change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Columns = Annotated[
    dict[str, str],
    Field(description="column name to type, for example `{id: long not null, tags: array<string>}`", min_length=1),
]
