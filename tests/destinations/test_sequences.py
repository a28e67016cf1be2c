"""Any sequence of what can happen to a pipeline ends in the model's tables, or in an error that names the choices.

Thousands of sequences are played without tables in `tests/unit/test_any_sequence.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs import offset_reset, protocol
from jobs.dead_letters.retry import retry
from jobs.maintenance.run import maintain_landing, maintain_table
from jobs.replay.from_kafka import from_offsets, reread_from_kafka
from jobs.replay.landed import replay_batches
from resources.errors import BatchmergeError, TopicRecreated
from tests.destinations.conftest import MakeStory, every_kind
from tests.kit import model
from tests.kit.engine import Engine
from tests.kit.examples import few
from tests.kit.kind import KindUnderTest
from tests.kit.model import Row
from tests.kit.records import Record, bootstrap, produce, random_changes, recreate
from tests.kit.story import COORDINATES, Story, TableUnderTest, Target

# Landed batches that every table has may go at once; every file is worth rewriting.
AT_ONCE = {"landed": {"keep_days": 1e-9}, "compaction": {"min_input_files": 2}, "snapshots": {"keep_last": 1}}


@dataclass(frozen=True)
class Skipped:
    """Records from an offset on that a reset has skipped."""

    first: int
    records: list[Record]


@dataclass
class Read:
    """A record that was read: by which pipeline file first, and by which last."""

    record: Record
    first: int
    newest: int

    def by(self, file: int) -> Record:
        """As this file reads it."""
        value = self.record.value
        if not isinstance(value, dict) or not file:
            return self.record
        return replace(self.record, value={**value, "name": f"{value['name']} by {file}"})


@dataclass
class Played:
    """A pipeline with one table of each of these modes of a kind.

    Attributes:
        log: the records of the topic as it is now.
        position: of the next one that is read.
        file: how often the pipeline file was mended.
        order: all that was read, and what a reset has skipped, in its order.
        once: what each table had to hold at first and after each advance.
    """

    engine: Engine
    tables: list[TableUnderTest]
    dice: random.Random
    log: list[Record] = field(default_factory=list)
    position: int = 0
    file: int = 0
    order: list[Read | Skipped] = field(default_factory=list)
    once: list[dict[str, list[Row]]] = field(default_factory=list)

    @property
    def delivered(self) -> list[Read]:
        return [one for one in self.order if isinstance(one, Read)]

    def expected(self, mode: str) -> list[Row]:
        """Rows that are there stay as they came, where a record is a row."""
        stays = mode in ("append", "delete")
        return model.expected([one.by(one.first if stays else one.newest) for one in self.delivered], mode)

    @classmethod
    def of(cls, story: Story, kind: KindUnderTest, modes: Sequence[str], seed: int) -> Played:
        # A table that was rolled back gets what it lacks; rows of a recreated topic are told by their batch.
        extra = {"on_rollback": "replay"} if kind.capabilities.rolls_back else {}
        options = {"metadata_columns": [*COORDINATES, "batch"], **extra}
        tables = [story.table(Target(kind, mode), **options) for mode in modes]
        engine = story.engine.edited(tables=[table.entry for table in tables], maintenance=AT_ONCE)
        return cls(engine, tables, random.Random(seed), once=[{table.name: [] for table in tables}])

    def tell(self, count: int) -> None:
        more = random_changes(self.dice.randrange(10**6), count, 8, 1)
        produce(bootstrap(self.engine.connections), self.engine.flow.topic, more)
        self.log += more

    def advance(self) -> None:
        self.tell(20)
        self.engine.land()
        self.order += self.read(self.log[self.position :])
        self.position = len(self.log)
        self.remember()
        pipeline = self.engine.pipeline
        for destination in pipeline.destinations():
            protocol.merge(pipeline, destination)

    def read(self, records: Sequence[Record]) -> list[Read]:
        return [Read(record, self.file, self.file) for record in records]

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
        start = self.dice.randrange(len(self.log) + 1)
        reread_from_kafka(pipeline, from_offsets(dict.fromkeys(committed.offsets, start)))
        self.read_at_last(start)
        self.remember()
        for destination in pipeline.destinations():
            protocol.merge(pipeline, destination)

    def replay_by_another_file(self) -> None:
        self.file += 1
        source: Any = self.engine.document["source"]
        name = f"concat(name, ' by {self.file}') as name"
        transform = f"select * except (name), {name} from records"
        self.engine = self.engine.edited(source={**source, "transform": transform})
        self.replay_from_kafka()

    def read_at_last(self, start: int) -> None:
        """Records that a reset has skipped stand where it skipped them, once; of all others there is a new reading."""
        again = {id(record) for record in self.log[start:]}
        for reading in self.delivered:
            reading.newest = self.file if id(reading.record) in again else reading.newest
        there, order = {id(one.record) for one in self.delivered}, list[Read | Skipped]()
        for one in self.order:
            if isinstance(one, Skipped):
                read = [r for n, r in enumerate(one.records, one.first) if n >= start and id(r) not in there]
                order += [Skipped(one.first, one.records[: max(0, start - one.first)]), *self.read(read)]
            else:
                order.append(one)
        self.order = order

    def retry(self) -> None:
        retry(self.engine.pipeline)

    def back_to_the_beginning(self) -> None:
        self._reset(to_end=False)

    def skip_to_the_end(self) -> None:
        self.tell(5)
        self._reset(to_end=True)

    def _reset(self, to_end: bool) -> None:
        pipeline = self.engine.pipeline
        known = offset_reset.read_state(pipeline)
        base = known.base()
        targets = known.topics.stable if to_end else known.topics.first
        offset_reset.commit(pipeline, known, base, offset_reset.plan_reset(known, base, targets, (), base.spec_hash))
        if to_end:
            self.order.append(Skipped(self.position, self.log[self.position :]))
        self.position = len(self.log) if to_end else 0

    def roll_back(self) -> None:
        """One table, by one commit."""
        table = self.dice.choice(self.tables)
        table.target.kind.roll_back(self.engine.connections, table.name)

    def retention(self) -> None:
        list(maintain_landing(self.engine.pipeline))

    def compaction(self) -> None:
        pipeline = self.engine.pipeline
        for destination in pipeline.destinations():
            list(maintain_table(pipeline, destination))

    def recreated_topic(self) -> None:
        recreate(self.engine.connections, self.engine.flow.topic)
        self.log, self.order = [], list(self.delivered)
        self.tell(10)
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


STEPS: dict[str, Callable[[Played], None]] = {
    "advance": Played.advance,
    "replay landed": Played.replay_landed,
    "replay from Kafka": Played.replay_from_kafka,
    "replay by another file": Played.replay_by_another_file,
    "retry": Played.retry,
    "back to the beginning": Played.back_to_the_beginning,
    "skip to the end": Played.skip_to_the_end,
    "retention": Played.retention,
    "compaction": Played.compaction,
    "recreated topic": Played.recreated_topic,
}
WHERE_IT_ROLLS_BACK = {"roll back": Played.roll_back}


def steps_of(kind: KindUnderTest) -> dict[str, Callable[[Played], None]]:
    return {**STEPS, **(WHERE_IT_ROLLS_BACK if kind.capabilities.rolls_back else {})}


def play(steps: list[str], seed: int, kind: KindUnderTest, modes: Sequence[str], new_story: MakeStory) -> None:
    played, known = Played.of(new_story(), kind, modes, seed), steps_of(kind)
    for step in ("advance", "advance", *steps, "advance"):
        problem = done(known[step], played)
        if problem:
            assert problem.remedy, (steps, step, problem)
        if problem and step != "retry" and not step.startswith("replay"):
            # A person has to choose; until then nothing is wrong.
            played.check_is_behind(steps)
            return
    played.check(steps)


def done(step: Callable[[Played], None], played: Played) -> BatchmergeError | None:
    """What refused it, if something did."""
    try:
        step(played)
    except BatchmergeError as problem:
        return problem
    return None


# What has been wrong once, and the usual dangers in a row; drawn ones come on top.
FIXED = [
    *("recreated topic", "replay by another file", "replay landed", "back to the beginning", "compaction"),
    *("replay from Kafka", "retention"),
]


@every_kind
def test_a_sequence_ends_in_the_model(kind: KindUnderTest, new_story: MakeStory) -> None:
    steps = [*FIXED, *(WHERE_IT_ROLLS_BACK if kind.capabilities.rolls_back else ())]
    play(steps, 1, kind, [mode for mode in kind.modes if mode != "upsert"], new_story)


@pytest.mark.slow
@every_kind
@few(6)
@given(data=st.data(), seed=st.integers(0, 99))
def test_any_sequence_ends_in_the_model(
    kind: KindUnderTest, new_story: MakeStory, data: st.DataObject, seed: int
) -> None:
    steps = data.draw(st.lists(st.sampled_from(sorted(steps_of(kind))), min_size=4, max_size=8))
    play(steps, seed, kind, kind.modes, new_story)
