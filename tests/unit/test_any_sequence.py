"""Any sequence of advance, crash, rollback, retention, reset and replay ends in the model's table.

The product decides: which batch comes next, which landed batches a table gets, which ranges a replay reads, where their
records stand, what a reset continues. Only the effects are played here, on dictionaries, so that thousands of steps
take a second; the same on real tables is in `tests/destinations`. The model knows only which records went in, by which
pipeline file each was read last, and folds them in their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jobs.batch import Batch, CommittedState, Counts, LandedBatch, LandedBatches
from jobs.landed_properties import landed_from_properties, landed_to_properties
from jobs.landing.places import places
from jobs.lineage import next_batches, next_stretch
from jobs.maintenance.retention import first_kept
from jobs.offsets import OffsetRange, Offsets, TopicPartition
from jobs.planning.plan import TopicState, plan_batch
from jobs.replay.from_kafka import wanted_ranges
from jobs.resets import offset_reset
from jobs.resets.offset_reset import ResetState
from jobs.verify.invariants import not_next, offset_jumps, offset_mismatch
from jobs.watermark import Watermark
from resources.errors import LineageBroken, OffsetsGone, TopicRecreated

# A record: which topic of its name it is from, and where it is there.
Place = tuple[str, TopicPartition, int]
# Key, and what it is set to; None deletes it, LEFT leaves what it was set to before, NULL where there was nothing.
Change = tuple[int, int | None]
LEFT, NULL = -1, 0
# A pipeline file that is corrected reads each value as another one, which is this larger.
CORRECTION = 1000

PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1)]
MODES = ("append", "upsert", "upsert_delete")


@dataclass(frozen=True)
class Table:
    """A destination table: its rows, by key or (append) by place, its state, and which records the model has in it.

    Attributes:
        model: by record the pipeline file that the table has it from.
    """

    rows: dict[object, int] = field(default_factory=dict)
    state: CommittedState | None = None
    model: Mapping[Place, int] = field(default_factory=dict)


@dataclass
class Destination:
    now: Table = field(default_factory=Table)
    before: list[Table] = field(default_factory=list)

    def commit(self, table: Table) -> None:
        self.before.append(self.now)
        self.now = table


class AnySequence(RuleBasedStateMachine):
    """A log of two partitions, a landing, and a table of each mode."""

    def __init__(self) -> None:
        super().__init__()
        self.logs: list[dict[TopicPartition, list[Change]]] = []
        self.new_topic()
        self.landed: list[LandedBatch] = []
        # Landed rows by batch and `i`: the record, and which batches have landed it.
        self.rows: dict[tuple[int, int], tuple[Place, set[int]]] = {}
        self.complete = True
        # The pipeline file as it is now, and which one landed a batch.
        self.file, self.files = 0, dict[int, int]()
        self.tables = {mode: Destination() for mode in MODES}
        self.values = 0

    # ---- what there is

    @property
    def topics(self) -> TopicState:
        return TopicState(dict(self.first), {tp: len(changes) for tp, changes in self.log.items()}, self.ids)

    @property
    def log(self) -> dict[TopicPartition, list[Change]]:
        return self.logs[-1]

    @property
    def ids(self) -> dict[str, str]:
        return {"t": f"{len(self.logs):03}"}

    def new_topic(self) -> None:
        self.logs.append({tp: [] for tp in PARTITIONS})
        self.first = dict.fromkeys(PARTITIONS, 0)

    @property
    def committed(self) -> CommittedState | None:
        return CommittedState.after(self.landed[-1]) if self.landed else None

    def places(self, batch: Batch) -> list[Place]:
        id_ = batch.topic_ids["t"]
        return [(id_, tp, o) for tp, r in sorted(batch.ranges.items()) for o in range(r.start, r.end)]

    def change(self, place: Place, file: int = 0) -> Change:
        id_, tp, offset = place
        key, value = self.logs[int(id_) - 1][tp][offset]
        return key, value if value in (None, LEFT) else value + CORRECTION * file

    # ---- what happens

    @initialize(before=st.integers(0, 6), start=st.integers(0, 6))
    def begin(self, before: int, start: int) -> None:
        """Records that were there before the pipeline, and where it starts."""
        self.produce([(n % 5, None if n % 3 == 0 else n) for n in range(before)])
        self.start = {tp: min(start, len(changes)) for tp, changes in self.log.items()}
        self.land(6, False, [(1, 1), (2, 1), (1, 1)])
        self.merge(MODES, False)

    def produce(self, changes: list[Change]) -> None:
        for key, value in changes:
            self.values += 1
            self.log[PARTITIONS[key % 2]].append((key, self.values if value not in (None, LEFT) else value))

    @rule(
        most=st.integers(1, 9),
        crashes=st.booleans(),
        changes=st.lists(st.tuples(st.integers(0, 4), st.sampled_from([None, 1, LEFT])), max_size=8),
    )
    def land(self, most: int, crashes: bool, changes: list[Change]) -> None:
        """A crash before the commit leaves nothing, and the next plan is another batch."""
        self.produce(changes)
        known = [self.committed, *(d.now.state for d in self.tables.values())]
        highest = max(s.batch_number if s else 0 for s in known)
        start = self.start
        try:
            batch = plan_batch(
                "p", "h", self.committed, highest, self.topics, lambda tps: {tp: start[tp] for tp in tps}, most, 0
            )
        except TopicRecreated:
            self.reset(dict(self.first))
            return
        if batch and not crashes:
            self.publish(batch)

    def publish(self, batch: Batch) -> None:
        made = LandedBatch(batch, Counts(), Watermark(dict.fromkeys(batch.ranges)), batch.number)
        self.landed.append(landed_from_properties(landed_to_properties(made), batch.number))
        self.files[batch.number] = self.file
        if batch.revises is None:
            for i, place in enumerate(self.places(batch)):
                self.rows[batch.number, i] = place, {batch.number}

    @rule(modes=st.sets(st.sampled_from(MODES)), crashes=st.booleans())
    def merge(self, modes: Iterable[str], crashes: bool) -> None:
        for mode in modes:
            self.merge_one(mode, crashes)

    def merge_one(self, mode: str, crashes: bool) -> None:
        table = self.tables[mode].now
        try:
            batches = next_batches(mode, table.state, self.landed, self.complete)
        except LineageBroken:
            self.reset({})
            batches = next_batches(mode, table.state, self.landed, self.complete)
        batches = next_stretch(batches)
        if not batches or crashes:
            return
        readings = [(place, self.files[b.number]) for b in batches for place in self.places(b.batch)]
        if batches[0].batch.revises is not None:
            # Of a key that was read again all that is landed, as in a replay: also what a reset has left out.
            number = batches[0].number
            readings = self.again(mode, number, number, number)
        rows = self.applied(mode, table.rows, readings)
        self.tables[mode].commit(Table(rows, CommittedState.after(batches[-1]), self.known(mode, table, readings)))

    def known(self, mode: str, table: Table, readings: Iterable[tuple[Place, int]]) -> Mapping[Place, int]:
        """What was read last of a record counts; a row of mode append stays as it came."""
        got, had = dict(readings), dict(table.model)
        return got | had if mode == "append" else had | got

    @rule(mode=st.sampled_from(MODES), steps=st.integers(1, 4))
    def roll_back(self, mode: str, steps: int) -> None:
        """Under `on_rollback: replay`."""
        destination = self.tables[mode]
        for _ in range(min(steps, len(destination.before))):
            destination.now = destination.before.pop()

    @precondition(lambda self: len(self.landed) > 1)
    @rule(count=st.integers(1, 3))
    def retire(self, count: int) -> None:
        """Retention of landed batches; the newest one stays. A rollback behind it stops with an error."""
        kept = first_kept(self.landed, [d.now.state for d in self.tables.values()], 2**63)
        for _ in range(count):
            if kept and self.landed[0].number < kept.number:
                self.landed, self.complete = self.landed[1:], False
        self.rows = {at: row for at, row in self.rows.items() if at[0] >= self.landed[0].number}

    @rule(tp=st.sampled_from(PARTITIONS), count=st.integers(1, 5))
    def delete_in_kafka(self, tp: TopicPartition, count: int) -> None:
        """Retention of Kafka, of what is landed."""
        if self.committed:
            self.first[tp] = max(self.first[tp], min(self.first[tp] + count, self.read_up_to(tp)))

    def read_up_to(self, tp: TopicPartition) -> int:
        assert self.committed
        return self.committed.offsets[tp] if self.committed.topic_ids == self.ids else 0

    @precondition(lambda self: self.committed is not None and len(self.logs) < 4)
    @rule()
    def recreate_topic(self) -> None:
        """Another topic of its name, whose records have the offsets of the old one's."""
        self.new_topic()

    @precondition(lambda self: self.committed is not None)
    @rule(skip=st.integers(0, 3))
    def skip(self, skip: int) -> None:
        """`offsets set`, forward."""
        state = self.committed
        assert state
        self.reset({tp: min(self.read_up_to(tp) + skip, len(self.log[tp])) for tp in state.offsets})

    def reset(self, targets: Offsets) -> None:
        states = {mode: d.now.state for mode, d in self.tables.items()}
        highest = max(s.batch_number for s in [self.committed, *states.values()] if s)
        parts = {mode: [state] for mode, state in states.items()}
        known = ResetState("p", self.committed, highest, parts, LandedBatches(self.landed, self.complete), self.topics)
        self.publish(offset_reset.plan_reset(known, known.base(), targets, (), "h"))

    @rule(mode=st.sampled_from(MODES), first=st.integers(1, 9), length=st.integers(0, 9))
    def replay(self, mode: str, first: int, length: int) -> None:
        """By batch numbers: the newest landed change of the keys that were touched; missing rows of append."""
        table = self.tables[mode].now
        if table.state is None or self.broken(mode):
            return
        until = table.state.batch_number
        wanted = [b for b in self.landed if first <= b.number <= min(first + length, until)]
        if not wanted:
            return
        readings = self.again(mode, wanted[0].number, wanted[-1].number, until)
        # Also of batches that a reset has left out.
        rows, model = self.applied(mode, table.rows, readings), self.known(mode, table, readings)
        self.tables[mode].commit(replace(table, rows=rows, model=model))

    def again(self, mode: str, first: int, last: int, until: int) -> list[tuple[Place, int]]:
        """What a replay of these batches takes: all that is landed of the keys that they touched, in its order.

        Each record as it was read last, with the pipeline file that it was read by.
        """
        known = [(at, place, reads) for at, (place, reads) in sorted(self.rows.items()) if min(reads) <= until]
        newest = [(at, place, reads, self.files[max(s for s in reads if s <= until)]) for at, place, reads in known]
        touched = [
            (place, file)
            for at, place, reads, file in newest
            if first <= at[0] <= last or any(first <= s <= last for s in reads)
        ]
        if mode == "append":
            return touched
        keys = {self.change(place)[0] for place, _ in touched}
        return [(place, file) for _, place, _, file in newest if self.change(place)[0] in keys]

    def broken(self, mode: str) -> bool:
        try:
            next_batches(mode, self.tables[mode].now.state, self.landed, self.complete)
        except LineageBroken:
            return True
        return False

    @precondition(lambda self: self.committed is not None)
    @rule(share=st.integers(0, 10), end=st.one_of(st.none(), st.integers(0, 10)), corrected=st.booleans())
    def replay_kafka(self, share: int, end: int | None, corrected: bool) -> None:
        """With the pipeline file as it is, or after it was corrected."""
        self.file += corrected
        state = self.committed
        assert state
        start = {tp: o * share // 10 for tp, o in state.offsets.items()}
        last = None if end is None else {tp: o * end // 10 for tp, o in state.offsets.items()}
        try:
            ranges = wanted_ranges(state, self.topics, self.landed, start, last, whole=True)
        except OffsetsGone:
            assert any(start[tp] < self.first[tp] for tp in PARTITIONS)
            return
        except TopicRecreated:
            assert state.topic_ids != self.ids
            return
        if not ranges:
            return
        empty = {tp: OffsetRange(o, o) for tp, o in state.offsets.items()}
        number = state.batch_number + 1
        batch = Batch("p", number, f"r{number}", state.commit_id, empty, self.ids, 0, "h", revises=0)
        for tp, stretches in places(self.landed, self.ids, ranges).stretches.items():
            for s in stretches:
                for offset in range(s.start, s.end):
                    place = self.ids["t"], tp, offset
                    self.rows.setdefault((s.batch, offset + s.shift), (place, set()))[1].add(number)
        self.publish(batch)

    # ---- what a merge does, with one change per key

    def applied(self, mode: str, rows: dict[object, int], readings: Iterable[tuple[Place, int]]) -> dict[object, int]:
        made = dict(rows)
        if mode == "append":
            missing = {p: v for p, f in readings if (v := self.change(p, f)[1]) is not None and p not in made}
            return made | {p: NULL if v == LEFT else v for p, v in missing.items()}
        newest: dict[int, int | None] = {}
        for place, file in readings:
            key, value = self.change(place, file)
            if value == LEFT and key in newest:
                newest[key] = NULL if newest[key] is None else newest[key]
            elif mode == "upsert_delete" or value is not None:
                newest[key] = value
        for key, value in newest.items():
            if value is None:
                made.pop(key, None)
            elif value == LEFT:
                made.setdefault(key, NULL)
            else:
                made[key] = value
        return made

    # ---- what must hold

    @invariant()
    def tables_are_the_model(self) -> None:
        for mode, destination in self.tables.items():
            table = destination.now
            # A key stays in its partition, so the order of offsets is that of its changes.
            expected: dict[object, int] = {}
            for place, file in sorted(table.model.items()):
                key, value = self.change(place, file)
                name: object = place if mode == "append" else key
                if value is not None:
                    expected[name] = value if value != LEFT else expected.get(name, NULL)
                elif mode == "upsert_delete":
                    expected.pop(name, None)
            assert table.rows == expected, mode

    @invariant()
    def chain_is_provable(self) -> None:
        assert not offset_jumps(self.landed)
        assert not not_next(self.landed)
        for mode, destination in self.tables.items():
            if not self.broken(mode):
                assert not offset_mismatch(destination.now.state, self.landed)


def test_key_that_is_read_again_gets_what_a_reset_has_left_out() -> None:
    played = AnySequence()
    played.begin(before=0, start=0)
    played.recreate_topic()
    played.land(changes=[(0, 1)], crashes=False, most=1)
    played.retire(1)
    played.roll_back("upsert", 1)
    played.land(changes=[(0, None)], crashes=False, most=2)
    for replayed in (False, True):
        if replayed:
            played.replay_kafka(share=5, end=None, corrected=False)
        played.merge(["upsert"], crashes=False)
        played.tables_are_the_model()
    assert played.tables["upsert"].now.rows == {0: 4}


TestAnySequence = AnySequence.TestCase
TestAnySequence.settings = settings(max_examples=60, stateful_step_count=40, suppress_health_check=list(HealthCheck))
