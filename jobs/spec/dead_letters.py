"""The `dead_letters` part of a pipeline file: how many bad records a batch may have, and where else they go."""

from __future__ import annotations

from pydantic import Field, model_validator

from jobs.spec.base import Spec
from resources.config_files.mistakes import Mistake, Mistakes


class DeadLetters(Spec):
    """Limits for bad records, and a topic for them."""

    max_share: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="a batch with a larger share of bad records stops, and nothing of it is landed. A merge stops "
        "before its commit if the table refuses such a share of its rows",
    )
    share_from: int = Field(100, gt=0, description="`max_share` does not apply to batches of fewer records")
    max_records: int | None = Field(None, gt=0, description="a batch with more bad records stops, as with `max_share`")
    topic: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9._-]{1,249}$",
        description="a topic in the source's cluster to which each dead letter is also sent: the original key and "
        "value, and Kafka Connect's `__connect.errors.*` headers",
        examples=["flights_dead_letters"],
    )
    create_topic: bool = Field(True, description="create the topic when it is missing: one partition")
    # Kafka's client waits no longer for one request.
    time_limit_seconds: int = Field(
        60, gt=0, le=300, description="for one transaction into the topic; the next run sends what is missing"
    )

    @model_validator(mode="before")
    @classmethod
    def _whole_shares_are_numbers(cls, given: object) -> object:
        if isinstance(given, dict) and given.get("max_share") == 1:
            raise Mistakes([Mistake(("max_share",), "a share of 1 never stops anything", "leave it out")])
        return given

    def refused(self, bad: int, read: int, batches: int = 1) -> str:
        """Why batches with `bad` bad records among `read` records are stopped; empty if they are not."""
        if self.max_records is not None and bad > self.max_records * batches:
            return f"more than `dead_letters.max_records: {self.max_records}`{' a batch' if batches > 1 else ''}"
        if self.max_share is not None and read >= self.share_from and bad > self.max_share * read:
            return f"more than `dead_letters.max_share: {self.max_share:g}` of {read}"
        return ""
