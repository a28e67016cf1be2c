"""The metrics by name: the one list behind the endpoint, the docs, the alert rules and the dashboard."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Measure:
    """One metric.

    Attributes:
        name: as Prometheus shows it, with its unit and for counters ``_total`` at the end.
        labels: names of the labels, which alone distinguish its series.
        counter: it only grows, from 0 at the start of the process that measures.
    """

    name: str
    text: str
    labels: tuple[str, ...]
    counter: bool = False


# `table` is `landing` for the landing itself, else kind and table: `iceberg shop.orders`.
_TABLE = ("pipeline", "table")

LAG = Measure("batchmerge_lag_records", "Records that Kafka has and the table does not have.", _TABLE)
LAG_SECONDS = Measure(
    "batchmerge_lag_seconds", "How long ago the table had all records of Kafka; 0 if no record waits.", _TABLE
)
BATCH = Measure("batchmerge_batch_number", "Number of the newest batch that the table has committed.", _TABLE)
VTTS = Measure(
    "batchmerge_valid_through_timestamp_seconds", "Record time up to which the table has every record.", _TABLE
)
DEAD_LETTERS = Measure("batchmerge_dead_letters", "Dead letters of the landing or of one table that wait.", _TABLE)
UP = Measure("batchmerge_up", "1 if the table's system answers, else 0.", _TABLE)
PAUSED = Measure("batchmerge_paused", "1 if the pipeline is paused: by a person, or in its file.", ("pipeline",))
DAEMON = Measure("batchmerge_daemon_up", "1 if a Dagster daemon runs, which starts schedules and sensors.", ())
LOOK_AGE = Measure(
    "batchmerge_look_age_seconds", "How old the other values are: seconds since the last look at all systems.", ()
)
CAUGHT_UP = Measure(
    "batchmerge_caught_up_through_timestamp_seconds",
    "As valid through, but a partition that was read to its end counts up to now.",
    _TABLE,
)
LAST_SUCCESS = Measure("batchmerge_last_success_timestamp_seconds", "When a step of the table last succeeded.", _TABLE)
BATCHES = Measure("batchmerge_batches_total", "Batches landed or merged.", _TABLE, counter=True)
ROWS = Measure(
    "batchmerge_rows_total",
    "Records of the landing, or rows of a table, by outcome.",
    (*_TABLE, "outcome"),
    counter=True,
)
STAGE_SECONDS = Measure(
    "batchmerge_stage_seconds_total", "Seconds of work by stage of a merge.", (*_TABLE, "stage"), counter=True
)
RUNS = Measure("batchmerge_runs_total", "Runs that have ended, by status.", ("pipeline", "status"), counter=True)
RETRIES = Measure("batchmerge_step_retries_total", "Steps that were retried.", ("pipeline",), counter=True)

MEASURES = tuple(one for one in list(globals().values()) if isinstance(one, Measure))


@dataclass(frozen=True)
class Sample:
    """One value of a metric; `labels` in the order of the measure's."""

    measure: Measure
    labels: tuple[str, ...]
    value: float
