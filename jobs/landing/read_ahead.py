"""Reads a landing's next batch while the one before it is published.

Publishing waits for the catalog, for Kafka's answers to events and for the plan of the next batch; Spark would have
nothing to do meanwhile. What was read ahead is files that no table has. The batch is published after the one before it,
on top of its state and of no other: if that was not published, nothing else can be done with it.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobs.landing.intermediate import IntermediateTable
from jobs.landing.publish import ReadBatch
from jobs.landing.reads import read_alone
from jobs.pipeline import Pipeline
from jobs.planning.plan import Planned
from jobs.time_limit import LOOK, ending_with, in_background, raise_if_to_end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Seconds to wait for Spark to be asked to end what is read in vain, and for the end of it.
_PATIENCE = 5.0


def read(
    pipeline: Pipeline,
    place: IntermediateTable,
    planned: Planned,
    until_published: Callable[[], None] | None = None,
    opened: Callable[[SparkSession], None] = lambda _: None,
) -> ReadBatch:
    """Reads the planned batch into files (`IntermediateTable.read`). `opened` gets the session before that."""
    assert planned.batch
    session = pipeline.spark("landing", place.catalog)
    opened(session)
    return place.read(session, pipeline.kafka, planned.batch, planned.committed, planned.topics, until_published)


@dataclass(frozen=True)
class _Next:
    planned: Future[Planned]
    read: Future[ReadBatch | None]
    published: threading.Event


class ReadAhead:
    """The batch of a landing that is read ahead, if any."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._over = threading.Event()
        self._next: _Next | None = None
        # By the tag Spark ends nothing else: a run that was faster works in the same session.
        self._tag = f"read-ahead-{uuid.uuid4().hex}"
        self._session: SparkSession | None = None

    def begin(self, before: ReadBatch) -> None:
        """Begins to plan and read the batch after this one, whose publication comes next.

        Not if that may change how records are read. Nor for members of a pipeline, whose reads share a Spark job:
        they wait for each other, and one reads while others publish.
        """
        pipeline, place, committed = self._pipeline, self._pipeline.intermediate, before.state
        if before.changes_reading or pipeline.reads is not read_alone:
            return

        def plan() -> Planned:
            # Kafka is asked before each batch: it may have deleted records, or recreated the topic.
            topics = pipeline.topic_state(committed)
            return Planned(pipeline.plan_batch(committed, topics), committed, topics)

        def read_planned() -> ReadBatch | None:
            found = planned.result()
            return read(pipeline, place, found, until_published, opened) if found.batch else None

        def opened(session: SparkSession) -> None:
            self._session = session
            session.addTag(self._tag)  # of this thread's operations
            raise_if_to_end()

        def until_published() -> None:
            while not published.wait(LOOK):
                raise_if_to_end()

        published = threading.Event()
        with ending_with(self._over):
            planned = in_background(plan)
            self._next = _Next(planned, in_background(read_planned), published)

    def published(self) -> None:
        """Says that the batch before the one that is read ahead is published."""
        if self._next:
            self._next.published.set()

    def planned(self) -> Planned | None:
        """Waits for the plan of the batch that is read ahead; None: none is. Raises what planning has raised."""
        return self._next.planned.result() if self._next else None

    def read(self) -> ReadBatch | None:
        """Waits for the batch that is read ahead; None: none is. Raises what reading has raised."""
        found, self._next = self._next, None
        return found.read.result() if found else None

    def stop(self) -> None:
        """Ends what is read in vain."""
        if self._next and not self._next.read.done():
            self._over.set()
            if session := self._session:
                wait([in_background(lambda: session.interruptTag(self._tag))], _PATIENCE)  # Spark may hang
            wait([self._next.read], _PATIENCE)


@contextmanager
def reading_ahead(pipeline: Pipeline) -> Iterator[ReadAhead]:
    """Reads batches of one landing ahead, until it ends."""
    ahead = ReadAhead(pipeline)
    try:
        yield ahead
    finally:
        ahead.stop()
