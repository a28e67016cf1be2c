"""`batchmerge dead-letters list | retry`: bad records of a pipeline, and trying them again."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import asdict

import click

from jobs.batch import LandedBatch
from jobs.connections_file import load_connections
from jobs.dead_letters.dead_letter import DeadLetter
from jobs.dead_letters.listing import list_dead_letters, summary
from jobs.dead_letters.refused import RetriedRows, retry_refused
from jobs.dead_letters.retry import Retried
from jobs.dead_letters.retry import retry as retry_dead_letters
from jobs.destinations.merge_context import Merged
from jobs.destinations.refused_rows import list_command
from jobs.pipeline import Pipeline
from jobs.replay.revise import combined
from jobs.spec.added_columns import OF_ANOTHER_TYPE, OTHER_COLUMN, adds_columns
from orchestration.cli import output
from orchestration.cli.in_turn import each_in_turn
from orchestration.files import each_pipeline, pipeline_spec, raise_most_terminal
from resources.errors import BatchmergeError

_GROUPS = ("table", "stage", "kind", "records", "first", "message")
_ROWS = ("topic", "partition", "offset", "batch", "stage", "kind", "message")
_VALUES = ("key", "value")


@click.group("dead-letters")
def dead_letters() -> None:
    """List the bad records of a pipeline, and retry them."""


@dead_letters.command("list")
@click.argument("pipeline")
@click.option("--rows", type=click.IntRange(min=1), metavar="N", help="Show the first N of each table one by one.")
@click.option("--values", is_flag=True, help="Show keys and values too; needs --rows.")
def list_(pipeline: str, rows: int | None, values: bool) -> None:
    """Show the dead letters of PIPELINE: how many of which kind, or one by one.

    Shows rows that tables refused too.
    """
    if values and rows is None:
        raise click.UsageError("--values needs --rows")

    def work(one: Pipeline) -> list[dict[str, object]]:
        if rows is not None:
            return [_row(letter) for letter in _dead_letters(one, rows, values)]
        return [asdict(group) for group in summary(one)]

    found, failed = each_pipeline(pipeline, load_connections(), work)
    columns = _GROUPS if rows is None else _ROWS + (_VALUES if values else ())
    shown = [row for part in found for row in part]
    _show(shown, columns)
    if adds_columns(pipeline_spec(pipeline)) and any(
        r["stage"] == "value" and r["kind"] in OF_ANOTHER_TYPE for r in shown
    ):
        output.say(f"Values of another type: {OTHER_COLUMN}")
    raise_most_terminal(failed)


@dead_letters.command()
@click.argument("pipeline")
@click.option("--no-wait", is_flag=True, help="Do not wait for another run of the pipeline: exit 3.")
def retry(pipeline: str, no_wait: bool) -> None:
    """Read the dead letters of PIPELINE again by its current file, and merge those that are valid now.

    Rows that a table refused are merged too, if the table accepts them now.

    Each record keeps its place in the order of changes, so newer changes of the same key stay. A record that is still
    bad stays a dead letter, and stops no other record. You can repeat the command at any time.
    """
    found, problems = each_in_turn(pipeline, "retry", not no_wait, _retry, _problems)
    done = _combined([retried for retried, _ in found])
    refused = {table: rows for _, tables in found for table, rows in tables.items() if rows.tried}
    output.say(f"{done.recovered:,} of {done.tried:,} dead letters are recovered")
    for letter in done.stay:
        place = f"{letter.topic}-{letter.partition}@{letter.offset}"
        output.say(f"  stays: {place}: {letter.stage}, {letter.kind}: {letter.message}")
    if (more := done.tried - done.recovered - len(done.stay)) > 0:
        command = f"batchmerge dead-letters list {pipeline} --rows {done.tried - done.recovered}"
        output.say(f"  and {more:,} more: `{command}`")
    if done.gone:
        output.say(
            f"  {done.gone:,} more cannot be tried, because retention has removed their batches: read them from Kafka "
            f"again, `batchmerge replay {pipeline} --kafka-offsets {done.first_gone}`"
        )
    merged = {table: one for table, one in done.applied.merged.items() if one}
    for table, one in merged.items():
        _say_merged(table, one.batches, one.merged)
    for table, rows in refused.items():
        number = "it is not known how many" if rows.recovered is None else f"{rows.recovered:,}"
        output.say(f"{number} of {rows.tried:,} rows that {table} refused are recovered")
        for replayed in rows.replayed:
            _say_merged(table, replayed.batches, replayed.merged)
        if rows.stay:
            output.say(f"  {rows.stay:,} stay: correct the table's options by what `{list_command(pipeline)}` says")
    raise_most_terminal(problems)
    tables = {table: asdict(one.merged.counts) for table, one in merged.items()}
    recovered = {table: {"tried": rows.tried, "recovered": rows.recovered} for table, rows in refused.items()}
    counts = {"tried": done.tried, "recovered": done.recovered, "gone": done.gone}
    output.result({**counts, "tables": tables, "refused": recovered})


_Retry = tuple[Retried, dict[str, RetriedRows]]


def _retry(pipeline: Pipeline) -> _Retry:
    return retry_dead_letters(pipeline), retry_refused(pipeline)


def _problems(done: _Retry) -> list[BatchmergeError]:
    retried, refused = done
    return [*retried.applied.failed.values(), *(rows.problem for rows in refused.values() if rows.problem)]


def _say_merged(table: str, batches: Sequence[LandedBatch], merged: Merged) -> None:
    counts = merged.counts
    numbers = f"{counts.inserted:,} inserted, {counts.updated:,} updated, {counts.deleted:,} deleted"
    output.say(f"  {table}: batches {batches[0].number} to {batches[-1].number}: {numbers}")


def _combined(done: list[Retried]) -> Retried:
    """The results of several topics as one."""
    return Retried(
        sum(one.tried for one in done),
        sum(one.recovered for one in done),
        [letter for one in done for letter in one.stay],
        combined(one.applied for one in done),
        sum(one.gone for one in done),
        next((one.first_gone for one in done if one.gone), ""),
    )


def _dead_letters(pipeline: Pipeline, most: int, values: bool) -> Iterator[DeadLetter]:
    yield from list_dead_letters(pipeline, most, values)
    for destination in pipeline.destinations():
        yield from destination.dead_letters(most, values)


def _row(letter: DeadLetter) -> dict[str, object]:
    fields = asdict(letter)
    fields["timestamp"] = letter.timestamp.isoformat() if letter.timestamp else None
    return {**fields, **{name: _text(fields[name]) for name in _VALUES}}


def _text(raw: bytes | None) -> str | None:
    """UTF-8 as text; other bytes as base64, marked as such."""
    if raw is None:
        return None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(raw).decode()


def _show(found: list[dict[str, object]], columns: tuple[str, ...]) -> None:
    output.result([{name: row[name] for name in ("table", *columns)} for row in found])
    if not found:
        output.say("no dead letters")
        return
    # Offsets and batches are names: they have no separators.
    output.table(columns, [[None if row[name] is None else str(row[name]) for name in columns] for row in found])
