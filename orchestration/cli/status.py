"""`batchmerge status`: the state of services and pipelines, in plain words."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import click

from orchestration.cli import TERMINAL, TRANSIENT, output
from orchestration.cli.dagster_child import DagsterChild
from orchestration.cli.streams import is_read
from orchestration.status.dagster_answers import AsksDagster
from resources.connections import data_folder
from resources.local import stack

if TYPE_CHECKING:
    from orchestration.status.values import PipelineStatus, Status, TableStatus

# Seconds between two looks of --watch.
_AGAIN = 2.0
_DAEMON = {
    True: "Dagster's daemon runs: schedules and sensors start runs.",
    False: "No Dagster daemon runs: nothing starts by itself. `batchmerge ui` starts one; `batchmerge run` needs none.",
}
_WORDS = """
behind: records in Kafka that the table does not have, and how long ago it had all of them (caught up through)
complete through: the table has every record of every partition up to this time (VTTS, valid-through timestamp)
dead letters: records that cannot be read: `batchmerge dead-letters list <pipeline>`
rows refused: landed rows that the table cannot store. Correct its options: `batchmerge dead-letters retry <pipeline>`
stale keys: keys whose newest change is a dead letter or a refused row, so the table has an older row"""


@click.command()
@click.argument("pipelines", nargs=-1)
@click.option(
    "--watch", is_flag=True, help="Look again every two seconds, until Ctrl-C; with --json each look is a line."
)
def status(pipelines: tuple[str, ...], watch: bool) -> None:
    """Show services and pipelines.

    Of a service: state, process id, address and log. Of a pipeline: whether it starts by itself or who has paused it,
    and its last error. Of a table: its batch, how far it is behind, up to when it is complete, and its dead letters.

    With PIPELINES shows only those, and no services. PIPELINE/TOPIC (`for_each`) shows that topic alone.

    Exit code 2: a pipeline's file is wrong, or they have no connections file; 3: a service that was started, a
    pipeline, a table or Dagster does not answer.
    """
    with DagsterChild() as dagster:
        while True:
            services, found = _look(pipelines, dagster)
            lines = [*map(_service, services), *_pipelines(found)]
            if watch and not output.wanted():
                click.clear()
            for line in lines:
                output.say(line)
            output.result({"services": services, **found.model_dump(mode="json")}, is_one_of_many=watch)
            if not watch or not is_read():
                break
            time.sleep(_AGAIN)
    silent = any(one.state in ("silent", "died") for one in services)
    wrong = TERMINAL if found.no_connections else exit_code(found.pipelines)
    sys.exit(wrong or (TRANSIENT if found.problem or silent else 0))


def exit_code(pipelines: Sequence[PipelineStatus]) -> int:
    if any(pipeline.problem and not pipeline.transient for pipeline in pipelines):
        return TERMINAL
    unanswered = any(pipeline.problem or any(t.problem for t in pipeline.tables) for pipeline in pipelines)
    return TRANSIENT if unanswered else 0


def _look(pipelines: tuple[str, ...], dagster: AsksDagster) -> tuple[list[stack.ServiceStatus], Status]:
    """The services are asked while modules are imported, and the pipelines are asked."""
    with ThreadPoolExecutor(1) as pool:
        services = pool.submit(stack.status, data_folder()) if not pipelines else None
        # Imported late: it takes a second that the other commands here need not wait for.
        from orchestration.status.pipelines import pipeline_status

        found = pipeline_status(dagster, pipelines)
        return services.result() if services else [], found


def _service(one: stack.ServiceStatus) -> str:
    ports = " ".join(f"{name}={port}" for name, port in one.ports.items())
    detail = one.reason or " ".join(
        part for part in (f"pid {one.pid}" if one.pid else "", ports, f"log {one.log}" if one.log else "") if part
    )
    return f"{one.name:<11}{one.state:<12}{detail}".rstrip()


def _pipelines(found: Status) -> list[str]:
    if found.no_connections:
        return [f"The pipelines cannot be asked. {found.no_connections}"]
    if not (found.pipelines or found.problem):
        return []
    lines = [
        found.problem or _DAEMON[found.daemon],
        *(line for pipeline in found.pipelines for line in _pipeline(pipeline)),
    ]
    return [*lines, *_WORDS.splitlines()]


def _pipeline(pipeline: PipelineStatus) -> list[str]:
    about = [f"pipeline {pipeline.name}: {pipeline.problem or pipeline.starts}"]
    about += [f"  {line}" for line in (*pipeline.ticks, *pipeline.runs)]
    if pipeline.last_error:
        about.append(f"  last run failed: {pipeline.last_error}")
    if pipeline.maintenance_error:
        about.append(f"  last maintenance failed: {pipeline.maintenance_error}")
    width = max((len(table.name) for table in pipeline.tables), default=0)
    return [*about, *(f"  {table.name:<{width}}  {_table(table)}" for table in pipeline.tables)]


def _table(table: TableStatus) -> str:
    if table.problem:
        return "; ".join(filter(None, (table.paused, table.problem)))
    parts = [*([table.paused] if table.paused else []), f"batch {table.batch or 0}", _behind(table)]
    if table.vtts:
        parts.append(f"complete through {table.vtts:%Y-%m-%d %H:%M:%S} UTC")
    if table.dead_letters:
        parts.append(f"{table.dead_letters:,} dead letters")
    if table.refused:
        parts.append(f"{table.refused:,} rows refused")
    if table.stale_keys:
        parts.append(f"{table.stale_keys:,} stale keys")
    return ", ".join(parts)


def _behind(table: TableStatus) -> str:
    if table.lag is None:
        return f"lag unknown: {table.lag_unknown or 'Kafka does not answer'}"
    if table.lag == 0:
        return "caught up"
    since = "" if table.seconds_behind is None else f" and {_duration(table.seconds_behind)}"
    return f"{table.lag:,} records{since} behind"


def _duration(seconds: float) -> str:
    """``40 s``, ``3 min``, ``5 h`` or ``2 days``."""
    for unit, size in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
