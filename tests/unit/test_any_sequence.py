"""Any sequence of advance, crash, rollback, retention, reset and replay ends in the model's table.

The product decides: which batch comes next, which landed batches a table gets, which ranges a replay reads, what a
reset continues. Only the effects are played here, on dictionaries, so that thousands of steps take a second; the same
on real tables is in `tests/destinations`. The model knows only which records went in, and folds them in their order.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jobs import offset_reset
from jobs.batch import Batch, CommittedState, Counts, LandedBatch, landed_from_properties, landed_to_properties
from jobs.landing.places import places
from jobs.lineage import next_batches, next_stretch
from jobs.maintenance.retention import first_kept
from jobs.offset_reset import ResetState
from jobs.offsets import OffsetRange, Offsets, TopicPartition
from jobs.plan import TopicState, plan_batch
from jobs.replay.from_kafka import wanted_ranges
from jobs.verify.invariants import not_next, offset_jumps, offset_mismatch
from jobs.watermark import Watermark
from resources.errors import LineageBroken, OffsetsGone

Place = tuple[TopicPartition, int]
# Key, and what it is set to; None deletes it, LEFT leaves what it was set to before, NULL where there was nothing.
Change = tuple[int, int | None]
LEFT, NULL = -1, 0

PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1)]
IDS = {"t": "id"}
MODES = ("append", "upsert", "upsert_delete")


@dataclass(frozen=True)
class Table:
    """A destination table: its rows, by key or (append) by place, its state, and which records the model has in it."""

    rows: dict[object, int] = field(default_factory=dict)
    state: CommittedState | None = None
    model: frozenset[Place] = frozenset()


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
        self.log: dict[TopicPartition, list[Change]] = {tp: [] for tp in PARTITIONS}
        self.first = dict.fromkeys(PARTITIONS, 0)
        self.landed: list[LandedBatch] = []
        # Landed rows by batch and `i`: the record, and which batches have landed a reading of it.
        self.rows: dict[tuple[int, int], tuple[Place, set[int]]] = {}
        self.complete = True
        self.tables = {mode: Destination() for mode in MODES}
        self.values = 0

    # ---- what there is

    @property
    def topics(self) -> TopicState:
        return TopicState(dict(self.first), {tp: len(changes) for tp, changes in self.log.items()}, IDS)

    @property
    def committed(self) -> CommittedState | None:
        return CommittedState.after(self.landed[-1]) if self.landed else None

    def places(self, batch: Batch) -> list[Place]:
        return [(tp, o) for tp, r in sorted(batch.ranges.items()) for o in range(r.start, r.end)]

    def change(self, place: Place) -> Change:
        return self.log[place[0]][place[1]]

    # ---- what happens

    @initialize(before=st.integers(0, 6), start=st.integers(0, 6))
    def begin(self, before: int, start: int) -> None:
        """Records that were there before the pipeline, and where it starts."""
        self.produce([(n % 5, None if n % 3 == 0 else n) for n in range(before)])
        self.start = {tp: min(start, len(changes)) for tp, changes in self.log.items()}

    @rule(changes=st.lists(st.tuples(st.integers(0, 4), st.sampled_from([None, 1, LEFT])), min_size=1, max_size=8))
    def produce(self, changes: list[Change]) -> None:
        for key, value in changes:
            self.values += 1
            self.log[PARTITIONS[key % 2]].append((key, self.values if value not in (None, LEFT) else value))

    @rule(most=st.integers(1, 9), crashes=st.booleans())
    def land(self, most: int, crashes: bool) -> None:
        """A crash before the commit leaves nothing, and the next plan is another batch."""
        known = [self.committed, *(d.now.state for d in self.tables.values())]
        highest = max(s.batch_number if s else 0 for s in known)
        batch = plan_batch(
            "p", "h", self.committed, highest, self.topics, lambda tps: {tp: self.start[tp] for tp in tps}, most, 0
        )
        if batch and not crashes:
            self.publish(batch)

    def publish(self, batch: Batch) -> None:
        made = LandedBatch(batch, Counts(), Watermark(dict.fromkeys(batch.ranges)), batch.number)
        self.landed.append(landed_from_properties(landed_to_properties(made), batch.number))
        if batch.revises is None:
            for i, place in enumerate(self.places(batch)):
                self.rows[batch.number, i] = place, {batch.number}

    @rule(mode=st.sampled_from(MODES), crashes=st.booleans())
    def merge(self, mode: str, crashes: bool) -> None:
        table = self.tables[mode].now
        try:
            batches = next_batches(mode, table.state, self.landed, self.complete)
        except LineageBroken:
            self.reset({})
            batches = next_batches(mode, table.state, self.landed, self.complete)
        batches = next_stretch(batches)
        if not batches or crashes:
            return
        places = [place for b in batches for place in self.places(b.batch)]
        if batches[0].batch.revises is not None:
            number = batches[0].number
            places = [place for place, said in self.rows.values() if number in said]
            rows = self.applied(mode, table.rows, self.again(mode, number, number, number))
        else:
            rows = self.applied(mode, table.rows, places)
        after = CommittedState.after(batches[-1])
        self.tables[mode].commit(Table(rows, after, table.model | set(places)))

    @rule(mode=st.sampled_from(MODES), steps=st.integers(1, 4))
    def roll_back(self, mode: str, steps: int) -> None:
        """Under `on_rollback: replay`."""
        destination = self.tables[mode]
        for _ in range(min(steps, len(destination.before))):
            destination.now = destination.before.pop()

    @precondition(lambda self: len(self.landed) > 1)
    @rule(count=st.integers(1, 3))
    def retire(self, count: int) -> None:
        """Retention of landed batches; the newest one stays. Who rolls back behind it, is told so."""
        kept = first_kept(self.landed, [d.now.state for d in self.tables.values()], 2**63)
        for _ in range(count):
            if kept and self.landed[0].number < kept.number:
                self.landed, self.complete = self.landed[1:], False
        self.rows = {at: row for at, row in self.rows.items() if at[0] >= self.landed[0].number}

    @rule(tp=st.sampled_from(PARTITIONS), count=st.integers(1, 5))
    def delete_in_kafka(self, tp: TopicPartition, count: int) -> None:
        """Retention of Kafka, of what is landed."""
        if self.committed:
            self.first[tp] = min(self.first[tp] + count, self.committed.offsets[tp])

    @precondition(lambda self: self.committed is not None)
    @rule(skip=st.integers(0, 3))
    def skip(self, skip: int) -> None:
        """`offsets set`, forward."""
        state = self.committed
        assert state
        self.reset({tp: min(o + skip, len(self.log[tp])) for tp, o in state.offsets.items()})

    def reset(self, targets: Offsets) -> None:
        states = {mode: d.now.state for mode, d in self.tables.items()}
        highest = max(s.batch_number for s in [self.committed, *states.values()] if s)
        known = ResetState("p", self.committed, highest, states, self.landed, self.complete, self.topics)
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
        places = self.again(mode, wanted[0].number, wanted[-1].number, until)
        self.tables[mode].commit(replace(table, rows=self.applied(mode, table.rows, places)))

    def again(self, mode: str, first: int, last: int, until: int) -> list[Place]:
        """What a replay of these batches takes: all that is landed of the keys that they touched, in its order."""
        known = [(at, place, said) for at, (place, said) in sorted(self.rows.items()) if min(said) <= until]
        touched = [p for at, p, said in known if first <= at[0] <= last or any(first <= s <= last for s in said)]
        if mode == "append":
            return touched
        keys = {self.change(place)[0] for place in touched}
        return [place for _, place, _ in known if self.change(place)[0] in keys]

    def broken(self, mode: str) -> bool:
        try:
            next_batches(mode, self.tables[mode].now.state, self.landed, self.complete)
        except LineageBroken:
            return True
        return False

    @precondition(lambda self: self.committed is not None)
    @rule(share=st.integers(0, 10), end=st.one_of(st.none(), st.integers(0, 10)))
    def replay_kafka(self, share: int, end: int | None) -> None:
        state = self.committed
        assert state
        start = {tp: o * share // 10 for tp, o in state.offsets.items()}
        last = None if end is None else {tp: o * end // 10 for tp, o in state.offsets.items()}
        try:
            ranges = wanted_ranges(state, self.topics, self.landed, start, last, whole=True)
        except OffsetsGone:
            assert any(start[tp] < self.first[tp] for tp in PARTITIONS)
            return
        if not ranges:
            return
        empty = {tp: OffsetRange(o, o) for tp, o in state.offsets.items()}
        number = state.batch_number + 1
        batch = Batch("p", number, f"r{number}", state.commit_id, empty, IDS, 0, "h", revises=0)
        for tp, stretches in places(self.landed, IDS, ranges).stretches.items():
            for s in stretches:
                for offset in range(s.start, s.end):
                    self.rows.setdefault((s.batch, offset + s.shift), ((tp, offset), set()))[1].add(number)
        self.publish(batch)

    # ---- what a merge does, with one change per key

    def applied(self, mode: str, rows: dict[object, int], places: list[Place]) -> dict[object, int]:
        made = dict(rows)
        if mode == "append":
            missing = {p: v for p in places if (v := self.change(p)[1]) is not None and p not in made}
            return made | {p: NULL if v == LEFT else v for p, v in missing.items()}
        newest: dict[int, int | None] = {}
        for place in places:
            key, value = self.change(place)
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
            for place in sorted(table.model):
                key, value = self.change(place)
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


TestAnySequence = AnySequence.TestCase
TestAnySequence.settings = settings(max_examples=60, stateful_step_count=40, suppress_health_check=list(HealthCheck))
