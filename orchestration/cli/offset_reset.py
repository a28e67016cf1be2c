"""`batchmerge offsets set | reset`: a person moves the offsets at which a pipeline goes on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from typing import cast

import click

from jobs.batch import Batch, CommittedState
from jobs.connections_file import load_connections
from jobs.offsets import Offsets, TopicPartition
from jobs.pipeline import Pipeline
from jobs.planning.first_offsets import first_offsets
from jobs.resets import offset_reset
from jobs.resets.offset_reset import ResetState
from jobs.spec.source import FromTimestamp, Start
from orchestration.cli import output
from orchestration.cli.instance import dagster_instance
from orchestration.cli.job_runs import end_dead
from orchestration.files import open_pipeline, pipeline_names, pipeline_spec, split_name
from orchestration.sensors.busy import busy_reason
from resources.errors import Unavailable

# Chooses new offsets, and partitions to forget, from the pipeline, its state, and the committed state to start from.
Choice = Callable[[Pipeline, ResetState, CommittedState], tuple[Offsets, Collection[TopicPartition]]]


@click.command("set")
@click.argument("pipeline")
@click.argument("offsets", nargs=-1, required=True, metavar="TOPIC-PARTITION=OFFSET...")
@click.option("--table", help="Start from this table's offsets, if the tables have different ones.")
@click.option("--accept-changes", is_flag=True, help="Accept a changed `changes` (key, op mapping, order).")
@click.option("--yes", is_flag=True, help="Do it. Without --yes the command only shows what it would do.")
def set_offsets(pipeline: str, offsets: Sequence[str], table: str | None, accept_changes: bool, yes: bool) -> None:
    """Continue at these offsets, for example `orders-0=1500`. Every other topic-partition keeps its offset.

    Skipped records are never read. Records that are read again are doubled in tables of mode append.
    """
    targets = dict(map(place, offsets))
    _reset(pipeline, lambda *_: (targets, ()), table, accept_changes, yes)


@click.command()
@click.argument("pipeline")
@click.option("--to", required=True, help="earliest, latest, committed (stay), or a time (UTC): 2026-01-31T12:00.")
@click.option("--topic", "topics", multiple=True, help="Only this topic; may be given several times.")
@click.option("--table", help="Start from this table's offsets, if the tables have different ones.")
@click.option("--accept-changes", is_flag=True, help="Accept a changed `changes` (key, op mapping, order).")
@click.option("--yes", is_flag=True, help="Do it. Without --yes the command only shows what it would do.")
def reset(pipeline: str, to: str, topics: Sequence[str], table: str | None, accept_changes: bool, yes: bool) -> None:
    """Continue at other offsets of PIPELINE's topics, after a topic was recreated or has lost records.

    Forgets topics that are no longer in `source`. `--to committed` keeps the offsets: use it after the intermediate
    table was rolled back or recreated, or with --accept-changes.
    """
    choice = _to(to, topics)
    _reset(pipeline, choice, table, accept_changes, yes)


def place(text: str) -> tuple[TopicPartition, int]:
    """``orders-0=1500`` as a topic-partition and an offset."""
    where, _, offset = text.partition("=")
    topic, _, partition = where.rpartition("-")
    if not (topic and partition.isdecimal() and offset.isdecimal()):
        raise click.UsageError(f"{text!r} is not TOPIC-PARTITION=OFFSET, for example orders-0=1500")
    return TopicPartition(topic, int(partition)), int(offset)


def _to(to: str, topics: Sequence[str]) -> Choice:
    if to == "committed":
        if topics:
            raise click.UsageError("--to committed keeps all offsets, so --topic does not go with it")
        return lambda *_: ({}, ())
    start: Start = FromTimestamp(timestamp=_instant(to)) if to not in ("earliest", "latest") else cast(Start, to)

    def choose(
        pipeline: Pipeline, known: ResetState, base: CommittedState
    ) -> tuple[Offsets, Collection[TopicPartition]]:
        there = known.topics
        unknown = set(topics) - {tp.topic for tp in [*there.partitions, *base.offsets]}
        if unknown:
            raise click.UsageError(f"{min(unknown)} is not a topic of pipeline {pipeline.name}")
        wanted = [tp for tp in there.partitions if not topics or tp.topic in topics]
        gone = [tp for tp in base.offsets if tp not in there.stable and (not topics or tp.topic in topics)]
        return first_offsets(pipeline.name, start, wanted, there, pipeline.offsets_at), gone

    return choose


def _instant(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError("--to is earliest, latest, committed, or a time like 2026-01-31T12:00") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _reset(name: str, choice: Choice, table: str | None, accept_changes: bool, yes: bool) -> None:
    pipeline = open_pipeline(name, load_connections())
    known = offset_reset.read_state(pipeline)
    base = known.base(pipeline.destination(table).name if table else None)
    targets, dropped = choice(pipeline, known, base)
    meaning = pipeline.spec.meaning_hash if accept_changes else base.meaning_hash
    batch = offset_reset.plan_reset(known, base, targets, dropped, meaning)
    _show(pipeline, known, base, batch)
    if not yes:
        output.say("Nothing was changed. Add --yes to do it.")
        output.result(_plain(base, batch, done=False))
        return
    require_idle(name)
    offset_reset.commit(pipeline, known, base, batch)
    output.say(f"Done, as {batch}. The tables follow at the next run.")
    output.result(_plain(base, batch, done=True))


def _plain(base: CommittedState, batch: Batch, *, done: bool) -> dict[str, object]:
    then = {tp: batch.ranges[tp].end if tp in batch.ranges else None for tp in {*base.offsets, *batch.ranges}}
    return {"done": done, "batch": batch.number, "now": base.offsets, "then": then}


def require_idle(name: str, file_of: str | None = None) -> None:
    """Raises Unavailable while a run of the pipeline (of a topic: of its pipeline) is under way.

    Args:
        file_of: another pipeline, whose file has the tables, if this one's file is gone.
    """
    pipeline = split_name(name)[0]
    spec = pipeline_spec(split_name(file_of)[0] if file_of else pipeline)
    with dagster_instance() as instance:
        end_dead(instance)
        busy = busy_reason(instance, pipeline, spec, has_file=file_of is None or pipeline in pipeline_names())
    if busy:
        raise Unavailable(
            busy, where=f"pipeline {pipeline}", remedy="wait until it has ended, or cancel it, then try again"
        )


def _show(pipeline: Pipeline, known: ResetState, base: CommittedState, batch: Batch) -> None:
    changed = list[tuple[object, ...]]()
    for tp in sorted({*base.offsets, *batch.ranges}):
        now = base.offsets.get(tp)
        then = batch.ranges[tp].end if tp in batch.ranges else None
        if now != then or base.topic_ids.get(tp.topic) != batch.topic_ids.get(tp.topic, ""):
            changed.append((tp, now, then, _note(tp, now, then, base, batch)))
    if changed:
        output.table(("topic-partition", "now", "then", ""), changed)
    else:
        output.say(f"All offsets stay: those of batch {base.batch_number}.")
    for one in offset_reset.impact(known, batch):
        if one.skipped or one.repeated:
            output.say(f"{one.table}: skips {one.skipped:,} offsets, gets {one.repeated:,} again")
    if batch.meaning_hash != base.meaning_hash:
        output.say("Existing rows stay as the earlier `changes` made them.")
    if "" in (batch.continues or {}):
        begin = ", ".join(n for n, state in known.tables.items() if state is None)
        output.say(f"{begin}: begins with this batch, without anything that was landed before")
    problem = offset_reset.validate(pipeline, known, offset_reset.state_after(base, batch))
    if problem:
        output.say(f"The next run would still fail: {problem}")


def _note(tp: TopicPartition, now: int | None, then: int | None, base: CommittedState, batch: Batch) -> str:
    if then is None:
        return "forgotten"
    if now is None:
        return "new"
    if base.topic_ids.get(tp.topic) != batch.topic_ids.get(tp.topic):
        return "another topic of this name"
    return f"skips {then - now:,}" if then > now else f"reads {now - then:,} again"
