"""`batchmerge replay`: merge again what was landed, by hours or by batches, or read it from Kafka again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import click

from jobs.batch import LandedBatch, MergeCounts
from jobs.connections_file import load_connections
from jobs.destinations.base import Destination
from jobs.pipeline import Pipeline
from jobs.replay import ahead
from jobs.replay.from_kafka import Wanted, from_offsets, from_time, ranges_ahead, reread_from_kafka
from jobs.replay.landed import replay_batches
from jobs.replay.revise import Applied, applied, combined, merge_tables
from orchestration.cli import output
from orchestration.cli.in_turn import each_in_turn
from orchestration.cli.instance import dagster_instance
from orchestration.cli.job_runs import definitions_of, run_job
from orchestration.cli.offset_reset import place
from orchestration.cli.progress import engine_log
from orchestration.cli.run import finish, launched
from orchestration.components.window import Window
from orchestration.files import each_pipeline, pipeline_spec, raise_most_terminal, split_name
from resources.errors import BatchmergeError, ConfigurationError

_HOUR = "%Y-%m-%dT%H"
_TIMES = [_HOUR, "%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"]
_WAYS = ("--from", "--batches", "--kafka-from", "--kafka-offsets")

# The records to read from Kafka again for a pipeline; None: no records of this one.
Reread = Callable[[Pipeline], Wanted | None]


@click.command()
@click.argument("pipeline")
@click.option("--from", "first", type=click.DateTime([_HOUR, "%Y-%m-%d"]), help="Landed from this hour on, UTC.")
@click.option("--to", "last", type=click.DateTime([_HOUR, "%Y-%m-%d"]), help="Last hour, UTC. Left out: this hour.")
@click.option("--batches", help="Landed batches by number: 3 or 3-7.")
@click.option("--kafka-from", type=click.DateTime(_TIMES), help="Read from Kafka: records of this time on, UTC.")
@click.option("--kafka-to", type=click.DateTime(_TIMES), help="Before this time; left out: all.")
@click.option(
    "--kafka-offsets", multiple=True, metavar="T-P=FIRST[:LAST]", help="Read from Kafka: from this offset on."
)
@click.option(
    "--what-is-left", is_flag=True, help="Read what Kafka still has, if it no longer has all of --kafka-from."
)
@click.option("--table", "tables", multiple=True, help="Only into this table; with --batches.")
@click.option("--no-wait", is_flag=True, help="Do not wait for another run that holds a table: exit 3.")
def replay(
    pipeline: str,
    first: datetime | None,
    last: datetime | None,
    batches: str | None,
    kafka_from: datetime | None,
    kafka_to: datetime | None,
    kafka_offsets: Sequence[str],
    what_is_left: bool,
    tables: Sequence[str],
    no_wait: bool,
) -> None:
    """Merge records into the tables of PIPELINE again: landed ones (--from, --batches), or from Kafka (--kafka-…).

    A replay of landed records changes nothing in a correct table. Read from Kafka records that are no longer landed,
    that are older than the pipeline's start, or that a corrected pipeline file reads differently. These records land
    as a new batch, keep their places in the order of changes, and go into all tables: newer rows stay, and a table of
    mode append gets the rows that it lacks. Committed offsets never move.

    --from does the same as a backfill in Dagster.
    """
    given = [way for way, value in zip(_WAYS, (first, batches, kafka_from, kafka_offsets), strict=True) if value]
    if len(given) != 1:
        raise click.UsageError(f"give one of {', '.join(_WAYS)}")
    if (last and not first) or ((kafka_to or what_is_left) and not kafka_from):
        raise click.UsageError("--to belongs to --from; --kafka-to and --what-is-left to --kafka-from")
    if first:
        if tables:
            raise click.UsageError("--from replays into all tables; name --batches for one table")
        _by_hours(pipeline, first, last, not no_wait)
    elif batches:
        _landed(pipeline, *_numbers(batches), tables, not no_wait)
    else:
        if tables:
            raise click.UsageError("what is read from Kafka goes into all tables; name --batches for one table")
        _from_kafka(pipeline, _reread(kafka_from, kafka_to, kafka_offsets, what_is_left), not no_wait)


def _reread(
    kafka_from: datetime | None, kafka_to: datetime | None, kafka_offsets: Sequence[str], what_is_left: bool
) -> Reread:
    if kafka_from:
        begin, end = kafka_from.replace(tzinfo=UTC), kafka_to.replace(tzinfo=UTC) if kafka_to else None
        if end and end <= begin:
            raise click.UsageError("--kafka-to is not after --kafka-from")
        return lambda pipeline: from_time(pipeline, begin, end, what_is_left)
    start, last = {}, {}
    for text in kafka_offsets:
        where, _, offsets = text.partition("=")
        low_text, _, high_text = offsets.partition(":")
        tp, start_offset = place(f"{where}={low_text}")
        start[tp] = start_offset
        if high_text:
            last[tp] = place(f"{where}={high_text}")[1]
    topics = {tp.topic for tp in start}
    # With `for_each` only the topics that are named.
    return lambda one: from_offsets(start, last) if one.part_of is None or topics & {*one.spec.source.topics} else None


def _numbers(text: str) -> tuple[int, int]:
    low, _, high = text.partition("-")
    if not low.isdecimal() or not (high or low).isdecimal() or int(high or low) < int(low):
        raise click.UsageError("--batches is a number or a range: 3 or 3-7")
    return int(low), int(high or low)


def _landed(name: str, low: int, high: int, tables: Sequence[str], wait: bool) -> None:
    of_all = split_name(name)[1] is None and pipeline_spec(name).source.for_each is not None

    def work(pipeline: Pipeline) -> _Replayed | None:
        wanted = _wanted(pipeline, tables, of_all)
        if not wanted:
            return None
        batches = [batch for batch in pipeline.intermediate.landed().batches if low <= batch.number <= high]
        click.echo(f"{pipeline.name}: {ahead.of_batches(batches)}", err=True)
        return _Replayed(applied(wanted, lambda destination: replay_batches(pipeline, destination, low, high)))

    found, problems = each_in_turn(name, "replay", wait, work, _Replayed.problems)
    if not (found or problems):
        raise ConfigurationError(f"no topic has a table {' or '.join(tables)}", remedy="name a table as `plan` does")
    _show(found, problems)


def _from_kafka(name: str, reread: Reread, wait: bool) -> None:
    def work(pipeline: Pipeline) -> _Replayed | None:
        wanted = reread(pipeline)
        if wanted is None:
            return None
        click.echo(f"{pipeline.name}: {ahead.of_kafka(ranges_ahead(pipeline, wanted))}", err=True)
        batch = reread_from_kafka(pipeline, wanted)
        done = merge_tables(pipeline)
        return _Replayed(done if batch else Applied(dict.fromkeys(done.merged), done.failed), batch)

    found, problems = each_in_turn(name, "replay", wait, work, _Replayed.problems)
    for batch in (one.batch for one in found if one.batch):
        read, bad = batch.counts.read, batch.counts.quarantined
        output.say(f"batch {batch.number}: read {read:,} records again, {bad:,} of them are dead letters")
    _show(found, problems)


@dataclass(frozen=True)
class _Replayed:
    """The result of a replay for one pipeline; `batch`: of the records that were read from Kafka again."""

    applied: Applied
    batch: LandedBatch | None = None

    def problems(self) -> list[BatchmergeError]:
        return list(self.applied.failed.values())


def _show(done: Sequence[_Replayed], problems: Sequence[BatchmergeError]) -> None:
    whole = combined(one.applied for one in done)
    counts = {table: one.merged.counts if one else None for table, one in whole.merged.items()}
    failed = [(table, "failed", None, None, None) for table in whole.failed]
    rows = [*((table, *_shown(found)) for table, found in counts.items()), *failed]
    output.table(("table", "changes", "inserted", "updated", "deleted"), rows)
    if not problems:
        output.result({"tables": counts})
    raise_most_terminal(problems)


def _wanted(pipeline: Pipeline, tables: Sequence[str], of_all: bool) -> list[Destination]:
    """The named tables, or all; of each topic (`of_all`) those that it has.

    Raises ConfigurationError: there is no table of a name.
    """
    if tables and not of_all:
        return [pipeline.destination(table) for table in tables]
    return [d for d in pipeline.destinations() if not tables or {d.name, d.table.table} & set(tables)]


def _shown(counts: MergeCounts | None) -> tuple[object, ...]:
    if counts is None:
        return "nothing to replay", None, None, None
    return counts.changes, counts.inserted, counts.updated, counts.deleted


def _say_what_is_ahead(name: str, first: datetime, last: datetime) -> None:
    """Prints what a replay of these hours, both included, will do. The run itself reports errors."""
    end = last + timedelta(hours=1)

    def say(pipeline: Pipeline) -> None:
        with suppress(BatchmergeError):
            landed = pipeline.intermediate.landed().batches
            found = ahead.landed_between(landed, first, end)
            text = ahead.of_batches(found)
            if Window(first, end).is_before(landed):
                text = ahead.of_kafka(ranges_ahead(pipeline, from_time(pipeline, first, end, what_is_left=False)))
            elif not found and pipeline.part_of:
                return
            click.echo(f"{pipeline.name}: {text}", err=True)

    each_pipeline(name, load_connections(), say)


def _by_hours(pipeline: str, first: datetime, last: datetime | None, wait: bool) -> None:
    name, spec, topics = launched(pipeline)
    now = datetime.now(UTC).replace(tzinfo=None)
    last = min(last or now, now)  # Dagster would show later hours as failed
    if last < first:
        raise click.UsageError("--to, or this hour, is before --from")
    begin = datetime.strptime(spec.since, "%Y-%m-%d-%H:%M")
    if first < begin:
        raise click.UsageError(f"the pipeline's first hour is {begin:%Y-%m-%dT%H} (`since` in its file)")
    hours = (first.strftime("%Y-%m-%d-%H:00"), last.strftime("%Y-%m-%d-%H:00"))
    _say_what_is_ahead(pipeline, first.replace(tzinfo=UTC), last.replace(minute=0, second=0, microsecond=0, tzinfo=UTC))
    with engine_log(), dagster_instance() as instance:
        result = run_job(
            instance, definitions_of(name, spec), name, {"mode": "replay", **topics}, hours=hours, wait=wait
        )
    finish(result, pipeline)
