"""A pipeline with tables to which anything may happen, and the model of what they then hold."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from jobs import protocol
from jobs.dead_letters.retry import retry
from jobs.maintenance.run import maintain_landing, maintain_table
from jobs.replay.from_kafka import from_offsets, reread_from_kafka
from jobs.replay.landed import replay_batches
from resources.errors import TopicRecreated
from tests.kit import model
from tests.kit.dead_letters import LARGE
from tests.kit.engine import Engine
from tests.kit.kind import KindUnderTest
from tests.kit.model import Row
from tests.kit.records import COLUMNS, Record, bootstrap, produce, random_changes, recreate
from tests.kit.resets import reset_offsets
from tests.kit.story import COORDINATES, Story, TableUnderTest, Target

# Landed batches that every table has may go at once; every file is worth rewriting.
AT_ONCE = {"landed": {"keep_days": 1e-9}, "compaction": {"min_input_files": 2}, "snapshots": {"keep_last": 1}}
PARTITIONS = 2
# Of the value: what is too large for the amount is a dead letter until the file is corrected.
NARROW = {**COLUMNS, "amount": "int", "version": "long"}
# Of one record in so many the amount fits only into what a corrected file has for it.
ONE_LARGE_IN = 6


@dataclass(frozen=True)
class Skipped:
    """Records of a partition, from an offset on, that a reset has skipped.

    Attributes:
        batch: that of the reset.
    """

    partition: int
    first: int
    records: list[Record]
    batch: int


@dataclass
class Read:
    """A record that was read.

    Attributes:
        batch: its place.
        first: the pipeline file by which it could be read first; None: by none yet, it is a dead letter.
        newest: the one by which last.
    """

    record: Record
    batch: int
    first: int | None = None
    newest: int | None = None

    def read(self, file: int) -> Read:
        """Once more, by this file."""
        value = self.record.value
        amount = value.get("amount") if isinstance(value, dict) else None
        if model.is_good(self.record) and (file or amount != LARGE):
            self.first, self.newest = file if self.first is None else self.first, file
        return self

    def by(self, file: int | None) -> list[Record]:
        """As this file reads it."""
        value = self.record.value
        if file is None:
            return []
        if not isinstance(value, dict) or not file:
            return [self.record]
        return [replace(self.record, value={**value, "name": f"{value['name']} by {file}"})]


def whole(records: Sequence[Record], dice: random.Random) -> list[Record]:
    """With amounts that are whole numbers, some of them large, and versions in no order."""
    made = []
    for one in records:
        value = one.value
        if isinstance(value, dict):
            large = not dice.randrange(ONE_LARGE_IN)
            value = {**value, "amount": LARGE if large else dice.randrange(100), "version": dice.randrange(20)}
        made.append(replace(one, value=value))
    return made


@dataclass
class Played:
    """A pipeline with one table of each of these modes of a kind.

    Attributes:
        log: the records of the topic as it is now, by partition.
        position: by partition of the next one that is read.
        file: how often the pipeline file was corrected.
        order_by: the column that orders the changes of a key; empty: they go by arrival.
        order: all that was read, and what a reset has skipped, in its order.
        once: what each table had to hold at first and after each advance.
    """

    engine: Engine
    tables: list[TableUnderTest]
    dice: random.Random
    order_by: str = ""
    log: list[list[Record]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])
    position: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    file: int = 0
    order: list[Read | Skipped] = field(default_factory=list)
    once: list[dict[str, list[Row]]] = field(default_factory=list)

    @property
    def delivered(self) -> list[Read]:
        return [one for one in self.order if isinstance(one, Read)]

    def expected(self, mode: str) -> list[Row]:
        """Rows that are there stay as they came, where a record is a row."""
        stays = mode in ("append", "delete")
        read = [record for one in self.delivered for record in one.by(one.first if stays else one.newest)]
        return model.expected_by(self.order_by, read, mode) if self.order_by else model.expected(read, mode)

    @classmethod
    def of(cls, story: Story, kind: KindUnderTest, modes: Sequence[str], seed: int) -> Played:
        # A table that was rolled back gets what it lacks; rows of a recreated topic are distinguished by their batch.
        extra = {"on_rollback": "replay"} if kind.capabilities.rolls_back else {}
        options = {"metadata_columns": [*COORDINATES, "batch"], **extra}
        tables = [story.table(Target(kind, mode), **options) for mode in modes]
        engine = story.engine.edited(tables=[table.entry for table in tables], maintenance=AT_ONCE)
        once: list[dict[str, list[Row]]] = [{table.name: [] for table in tables}]
        order_by = engine.pipeline.spec.changes.ordered_by or ""
        return cls(engine, tables, random.Random(seed), order_by, once=once)

    def produce(self, count: int) -> None:
        more = whole(random_changes(self.dice.randrange(10**6), count, 8, PARTITIONS), self.dice)
        produce(bootstrap(self.engine.connections), self.engine.flow.topic, more)
        for record in more:
            self.log[record.partition].append(record)

    def advance(self) -> None:
        self.produce(20)
        for batch in self.engine.land():
            for log, position in zip(self.log, self.position, strict=True):
                self.order += [Read(record, batch.number).read(self.file) for record in log[position:]]
            self.position = [len(log) for log in self.log]
        self.remember()
        pipeline = self.engine.pipeline
        for destination in pipeline.destinations():
            protocol.merge(pipeline, destination)

    def remember(self) -> None:
        self.once.append({t.name: self.expected(t.target.mode) for t in self.tables})

    def replay_landed(self) -> None:
        pipeline = self.engine.pipeline
        first, last = sorted(self.dice.choices([b.number for b in pipeline.intermediate.landed().batches], k=2))
        for destination in pipeline.destinations():
            replay_batches(pipeline, destination, first, last)

    def replay_from_kafka(self) -> None:
        pipeline = self.engine.pipeline
        committed = pipeline.intermediate.committed()
        assert committed
        start = [self.dice.randrange(len(log) + 1) for log in self.log]
        reread_from_kafka(pipeline, from_offsets({tp: start[tp.partition] for tp in committed.offsets}))
        self.read_at_last(start)
        self.remember()
        for destination in pipeline.destinations():
            protocol.merge(pipeline, destination)

    def replay_by_another_file(self) -> None:
        self.correct_file()
        self.replay_from_kafka()

    def correct_file(self) -> None:
        """The pipeline file: other names, and amounts may be large."""
        self.file += 1
        name = f"concat(name, ' by {self.file}') as name"
        columns = {**self.engine.document["source"]["value"]["columns"], "amount": "long"}
        transform = f"select * except (name), {name} from records"
        self.engine = self.engine.with_value(columns=columns).with_source(transform=transform)

    def read_at_last(self, start: Sequence[int]) -> None:
        """Records that a reset has skipped stand where it skipped them, once; all others are read again."""
        again = {id(record) for log, first in zip(self.log, start, strict=True) for record in log[first:]}
        for known in self.delivered:
            if id(known.record) in again:
                known.read(self.file)
        there, order = {id(one.record) for one in self.delivered}, list[Read | Skipped]()
        for one in self.order:
            if isinstance(one, Skipped):
                first = start[one.partition]
                read = [r for n, r in enumerate(one.records, one.first) if n >= first and id(r) not in there]
                order.append(replace(one, records=one.records[: max(0, first - one.first)]))
                order += [Read(record, one.batch).read(self.file) for record in read]
            else:
                order.append(one)
        self.order = order

    def retry(self) -> None:
        """Retries dead letters, of batches that retention has left."""
        first = self.engine.pipeline.intermediate.landed().batches[0].number
        retry(self.engine.pipeline)
        for known in self.delivered:
            if known.first is None and known.batch >= first:
                known.read(self.file)
        self.remember()

    def retry_by_another_file(self) -> None:
        """What could be read before stays as it was read."""
        self.correct_file()
        self.retry()

    def back_to_the_beginning(self) -> None:
        self._reset(to_end=False)

    def skip_to_the_end(self) -> None:
        self.produce(5)
        self._reset(to_end=True)

    def _reset(self, to_end: bool) -> None:
        pipeline = self.engine.pipeline
        topics = pipeline.topic_state()
        batch = reset_offsets(pipeline, topics.stable if to_end else topics.first)
        if to_end:
            for partition, (log, first) in enumerate(zip(self.log, self.position, strict=True)):
                self.order.append(Skipped(partition, first, log[first:], batch.number))
        self.position = [len(log) if to_end else 0 for log in self.log]

    def roll_back(self) -> None:
        """Rolls one table back, by one commit."""
        table = self.dice.choice(self.tables)
        table.target.kind.roll_back(self.engine.connections, table.name)

    def retention(self) -> None:
        list(maintain_landing(self.engine.pipeline))

    def compaction(self) -> None:
        pipeline = self.engine.pipeline
        for destination in pipeline.destinations():
            list(maintain_table(pipeline, destination))

    def recreated_topic(self) -> None:
        recreate(self.engine.connections, self.engine.flow.topic, PARTITIONS)
        self.log, self.order = [[] for _ in range(PARTITIONS)], list(self.delivered)
        self.produce(10)
        with pytest.raises(TopicRecreated, match="offsets reset"):
            self.engine.land()
        self.back_to_the_beginning()

    def check(self, steps: object) -> None:
        for table in self.tables:
            assert table.rows() == self.expected(table.target.mode), (steps, table.name)

    def check_is_behind(self, steps: object) -> None:
        """An error has stopped it: each table is as it was some time."""
        for table in self.tables:
            assert table.rows() in [once[table.name] for once in self.once], (steps, table.name)
