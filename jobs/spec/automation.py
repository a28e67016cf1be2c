"""The parts of a pipeline file about when runs start, how long steps may take, and how often they are retried."""

from __future__ import annotations

from pydantic import Field, model_validator

from jobs.spec.base import Spec
from resources.config_files.mistakes import Mistake, Mistakes


class Trigger(Spec):
    """When the lag sensor starts a run, in addition to the schedule."""

    records: int | None = Field(None, gt=0, description="start when this many records wait in Kafka")
    age_seconds: int | None = Field(None, gt=0, description="start when records have waited this long")

    @model_validator(mode="after")
    def _one_at_least(self) -> Trigger:
        if self.records is None and self.age_seconds is None:
            raise Mistakes([Mistake((), "it says nothing", "name `records`, `age_seconds` or both")])
        return self


class Retry(Spec):
    """How a step is retried after a transient failure. Terminal failures are never retried."""

    max_retries: int = Field(3, ge=0, description="tries after the first one")
    delay_seconds: float = Field(10, gt=0, description="before the first retry; doubles each time, with some jitter")
