"""The demo's topic in the local services: creates, fills and deletes it."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import click
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from jobs.pipeline import Pipeline
from resources.connections import KafkaConnection
from resources.errors import TopicMissing, Unavailable
from resources.local.flights.changes import FlightChanges
from resources.local.flights.produce import produce_flights

# Seconds until a deleted topic is gone.
_PATIENCE = 60
_LOG = logging.getLogger("batchmerge.kafka")


@dataclass
class Flights:
    """The flights of a month, or of the year (None), for the demo's pipeline."""

    pipeline: Pipeline
    month: int | None

    @cached_property
    def changes(self) -> FlightChanges:
        return FlightChanges(self.month)

    @property
    def _topic(self) -> str:
        return self.pipeline.spec.source.topics[0]

    @property
    def _bootstrap(self) -> str:
        connection = self.pipeline.connections.get(self.pipeline.spec.source.connection, KafkaConnection)
        return connection.bootstrap_servers

    def provide(self, say: Callable[[str], None]) -> None:
        """Fills the topic, unless it is complete and the tables still lack a part of it: then the demo goes on."""
        if self._is_unfinished():
            say("the topic is complete and the table is not: going on where the last demo was interrupted")
            return
        self._restart(say)
        with click.progressbar(length=len(self.changes), label="sending", file=sys.stderr) as bar:
            sent = produce_flights(
                self._bootstrap,
                self._topic,
                month=self.month,
                progress=lambda done: bar.update(done - bar.pos),
            )
        say(f"{sent.records:,} records into {sent.partitions} partitions in {sent.seconds:.1f} s")

    def _is_unfinished(self) -> bool:
        try:
            ends = self.pipeline.topic_state().stable
        except TopicMissing:
            return False
        if sum(ends.values()) != len(self.changes):
            return False
        states = [destination.committed() for destination in self.pipeline.destinations()]
        return not all(state and dict(state.offsets) == dict(ends) for state in states)

    def _restart(self, say: Callable[[str], None]) -> None:
        landing = self.pipeline.intermediate
        gone = [landing.catalog.drop(landing.identifier)]
        for destination in self.pipeline.destinations():
            gone += [destination.drop(), destination.drop_state()]
        if any([*gone, self._delete_topic()]):
            say("starting again: the last demo's topic and tables are gone, its runs stay in Dagster")

    def _delete_topic(self) -> bool:
        admin = AdminClient({"bootstrap.servers": self._bootstrap}, logger=_LOG)
        try:
            admin.delete_topics([self._topic], operation_timeout=30)[self._topic].result()
        except KafkaException as problem:
            if problem.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return False
            raise Unavailable(f"the topic cannot be deleted: {problem.args[0].str()}", where=self._topic) from None
        until = time.monotonic() + _PATIENCE
        while self._topic in admin.list_topics(timeout=30).topics:
            if time.monotonic() > until:
                raise Unavailable("the topic is still there after it was deleted", where=self._topic)
            time.sleep(0.1)
        return True
