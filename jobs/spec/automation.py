"""The parts of a pipeline file that say when a run starts, how long its steps may take, and how often to try again."""

from __future__ import annotations

from pydantic import Field, model_validator

from jobs.spec.base import Spec
from resources.config_files.mistakes import Mistake, Mistakes


class Trigger(Spec):
    """When the lag sensor starts a run, beside the schedule: whichever comes first."""

    records: int | None = Field(None, gt=0, description="start when this many records wait in Kafka")
    age_seconds: int | None = Field(None, gt=0, description="records have been waiting for so long")

    @model_validator(mode="after")
    def _one_at_least(self) -> Trigger:
        if self.records is None and self.age_seconds is None:
            raise Mistakes([Mistake((), "it says nothing", "name `records`, `age_seconds` or both")])
        return self


class Retry(Spec):
    """How a step is tried again after a transient failure. A terminal one is never tried again."""

    max_retries: int = Field(3, ge=0, description="tries after the first one")
    delay_seconds: float = Field(10, gt=0, description="before the first retry; doubles each time, with some jitter")
