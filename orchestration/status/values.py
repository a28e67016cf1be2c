"""What `batchmerge status` and the metrics say of pipelines and their tables."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict


class TableStatus(BaseModel):
    """One table, or the landing.

    Attributes:
        topic: with `for_each` the topic whose table or landing this is.
        lag: records that Kafka has and the table has not; None: unknown now.
        lag_unknown: why, where Kafka answers; None: it does not answer, or `lag` is known.
        seconds_behind: seconds since the table had all records; 0: nothing waits.
        vtts: valid-through timestamp: the table has all earlier records of every partition.
        caught_up_through: as `vtts`, but a partition that was read to its end counts up to that moment.
        dead_letters: of the landing: records that cannot be read.
        refused: of a table: landed rows that it cannot store.
        stale_keys: of a table: keys of which it had an older row than was sent, at its last merge.
        paused: by whom and since when; None: it is not paused.
        problem: why the table cannot be queried now.
    """

    model_config = ConfigDict(frozen=True)
    name: str
    topic: str | None = None
    batch: int | None = None
    lag: int | None = None
    lag_unknown: str | None = None
    seconds_behind: float | None = None
    vtts: datetime | None = None
    caught_up_through: datetime | None = None
    dead_letters: int | None = None
    refused: int | None = None
    stale_keys: int = 0
    paused: str | None = None
    problem: str | None = None

    @property
    def is_landing(self) -> bool:
        """Whether this is a landing, or a topic that cannot be landed."""
        return self.name.startswith(("landing ", "topic "))


class PipelineStatus(BaseModel):
    """One pipeline: its landing first, then its tables.

    Attributes:
        paused: nothing of it starts by itself.
        starts: what starts it, or why nothing does.
        ticks: a line for each schedule and sensor of it that does not tick, or whose last tick failed.
        runs: a line for each run under way.
        last_error: the error of its last run, if that failed.
        maintenance_error: likewise of its last maintenance.
        problem: why its file cannot be used, or what it needs cannot be asked.
        transient: whether the problem may pass by itself.
    """

    model_config = ConfigDict(frozen=True)
    name: str
    tables: list[TableStatus]
    paused: bool = False
    starts: str = ""
    ticks: list[str] = []
    runs: list[str] = []
    last_error: str | None = None
    maintenance_error: str | None = None
    problem: str | None = None
    transient: bool = False


class Status(BaseModel):
    """All pipelines, and whether a Dagster daemon runs, which starts their schedules and sensors.

    Attributes:
        problem: why Dagster cannot be asked: what it knows is missing then.
        no_connections: why no pipeline can be asked, if there are pipelines.
    """

    model_config = ConfigDict(frozen=True)
    daemon: bool = False
    pipelines: list[PipelineStatus] = []
    problem: str | None = None
    no_connections: str | None = None
