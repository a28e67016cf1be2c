"""Steps under a lease against the twin in memory: killed before and after any outside effect, any number of times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.batch import LandedBatch
from jobs.destinations.clickhouse.advance import Advance
from jobs.destinations.clickhouse.insert_task import InsertCounts, Only
from jobs.destinations.clickhouse.state import Lease, PartitionWrite
from jobs.destinations.clickhouse.steps import Chunk, Step, cut, left_behind
from jobs.destinations.clickhouse.transitions import Phase, Span
from jobs.offsets import OffsetRange, Offsets, TopicPartition
from resources.errors import CommitFailed, Interrupted, LineageBroken
from tests.kit import batches as kit
from tests.kit.batches import P0, P1
from tests.unit.clickhouse.twin import Fuse, Killed, MemoryStore

# Of what topic, which topic-partition, offset, batch.
Row = tuple[str, TopicPartition, int, int]


@dataclass
class FakeTable:
    """Rows with the step that has inserted each, and the tokens that it remembers."""

    rows: list[Row] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    statements: int = 0

    def insert(self, step: Step, chunk: Chunk, token: str, only: Only) -> None:
        if token in self.tokens:
            return
        self.tokens.add(token)
        self.statements += 1
        there = {
            Only.ALL: set[tuple[str, TopicPartition, int]](),
            Only.STEP: {row[:3] for row, of in zip(self.rows, self.steps, strict=True) if of == step.last},
            Only.RECORD: {row[:3] for row in self.rows},
        }[only]
        new = [row for row in rows_of(step.batches, chunk) if row[:3] not in there]
        self.rows += new
        self.steps += [step.last] * len(new)


def rows_of(landed: Sequence[LandedBatch], chunk: Chunk | None = None) -> Iterator[Row]:
    for b in landed:
        for tp, taken in b.batch.ranges.items():
            for offset in range(taken.start, taken.end):
                span = chunk.spans.get(tp) if chunk else Span(offset, offset)
                within = chunk is None or chunk.first <= b.number <= chunk.last
                if within and span and span.first <= offset <= span.last:
                    yield b.batch.topic_ids[tp.topic], tp, offset, b.number


def batch(
    number: int, first: int, end: int, after: str | None = None, topic_id: str = "id", at: Offsets | None = None
) -> LandedBatch:
    """A batch of the first topic-partition; with `at` a reset to there."""
    made = kit.batch(number, {P0: OffsetRange(first, end)}, after, topic_ids={"t": topic_id})
    continues = None if at is None else {made.previous_commit_id or "": at}
    return kit.landed_without_rows(replace(made, continues=continues))


def batches(count: int, size: int = 25) -> list[LandedBatch]:
    """The second partition has nothing new in every other batch, and a gap after it."""
    ranges = [
        {P0: OffsetRange((n - 1) * size, n * size), P1: OffsetRange(n * 3, n * 3 + 3 * (n % 2))}
        for n in range(1, count + 1)
    ]
    return [kit.landed(n, ranges=read, topic_ids={"t": "id"}) for n, read in enumerate(ranges, 1)]


def advance(store: MemoryStore, table: FakeTable) -> Advance:
    def insert(held: Lease, step: Step, only: Only) -> InsertCounts:
        for chunk in step.chunks:
            ends = store.fuse.burn()
            now = store.lease()
            if now is None or now.owner != held.owner:
                raise Interrupted("the fence")
            table.insert(step, chunk, f"{held.step}/{chunk.name}", only)
            if ends:
                raise Killed
        return InsertCounts(rows=len(step.chunks))

    return Advance(store, "t", "run", ("h:1",), "", "id", lambda _: None, insert)


def run(store: MemoryStore, table: FakeTable, landed: list[LandedBatch], chunk_rows: int = 10, most: int = 9) -> None:
    """What a run does with these landed batches."""
    lease = store.lease()
    done = lease.committed.batch_number if lease and lease.committed else 0
    newer = [b for b in landed if b.number > done]
    if newer:
        begun = left_behind(lease, newer, "t", chunk_rows)
        rest = newer[len(begun.batches) :] if begun else newer
        advance(store, table).run(lease, [*([begun] if begun else []), *cut(rest, chunk_rows, most)])


def expected(landed: Sequence[LandedBatch]) -> list[Row]:
    return sorted(rows_of(landed))


def state(store: MemoryStore) -> tuple[int, int, str]:
    lease = store.lease()
    assert lease
    return (lease.committed.batch_number if lease.committed else 0, lease.batch, lease.owner)


kills = st.tuples(st.integers(1, 40), st.booleans(), st.booleans(), st.integers(5, 80), st.integers(1, 9))


@settings(deadline=None)
@given(st.lists(kills, max_size=6))
def test_any_kills_lose_and_double_nothing(kills: list[tuple[int, bool, bool, int, int]]) -> None:
    shared, table = MemoryStore(), FakeTable()
    for landed, (at, after, forgets, chunk_rows, most) in enumerate(kills, start=2):
        try:
            # More is landed while a step is under way, and the file changes: a retry is the same step, cut again only
            # where the file wants smaller chunks.
            run(MemoryStore(shared, Fuse(at, after)), table, batches(landed), chunk_rows, most)
        except Killed:
            # Other writers may have used up the window; a step that is under way is looked up by coordinates.
            if forgets:
                table.tokens.clear()
    run(shared, table, batches(8))
    assert sorted(table.rows) == expected(batches(8))
    assert state(shared) == (8, 0, "")


def test_small_batches_go_in_one_step() -> None:
    shared, table = MemoryStore(), FakeTable()
    run(shared, table, batches(40, size=1), chunk_rows=200)
    assert sorted(table.rows) == expected(batches(40, size=1))
    assert table.statements == 1
    assert state(shared) == (40, 0, "")


def test_a_retry_is_cut_into_smaller_chunks_where_the_file_wants_them() -> None:
    shared, table, landed = MemoryStore(), FakeTable(), batches(2)
    with pytest.raises(Killed):
        run(MemoryStore(shared, Fuse(3, True)), table, landed, chunk_rows=20)
    assert (table.statements, len(table.rows)) == (1, 20)
    table.tokens.clear()
    run(shared, table, landed, chunk_rows=7)
    assert sorted(table.rows) == expected(landed)
    assert table.statements == 1 + 8
    assert state(shared) == (2, 0, "")


def test_run_that_was_taken_over_is_interrupted() -> None:
    shared, table, landed = MemoryStore(), FakeTable(), batches(2)
    (step,) = cut(landed[:1], 10, 99)
    sleeper = advance(shared, table)
    old = sleeper.take(None, step)
    run(shared, table, landed)
    with pytest.raises(Interrupted):
        sleeper._apply(old, step, False)
    with pytest.raises(Interrupted):
        sleeper._commit(old, step, None)
    assert sorted(table.rows) == expected(landed)


def test_run_that_is_taken_over_before_it_confirms_commits_nothing() -> None:
    shared, table, landed = MemoryStore(), FakeTable(), batches(2)
    (step,) = cut(landed[:1], 10, 99)
    sleeper = advance(shared, table)

    def insert_and_sleep(held: Lease, step: Step, only: Only) -> InsertCounts:
        done = sleeper.insert(held, step, only)
        run(shared, table, landed)
        return done

    with pytest.raises(Interrupted):
        replace(sleeper, insert=insert_and_sleep).run(None, [step])
    assert sorted(table.rows) == expected(landed)
    assert state(shared) == (2, 0, "")
    assert {row.batch for row in shared.partitions([P0, P1]).values()} == {1, 2}, "as the newer run has left them"


def test_stale_view_of_the_lease_is_refused() -> None:
    shared, table, landed = MemoryStore(), FakeTable(), batches(2)
    seen = shared.lease()
    run(shared, table, landed[:1])
    with pytest.raises(CommitFailed):
        advance(shared, table).run(seen, cut(landed, 10, 99))


def test_recreated_topic_begins_again() -> None:
    """Rows of the topic before it have the same offsets, and stay."""
    shared, table = MemoryStore(), FakeTable()
    landed = [
        batch(1, 0, 30, topic_id="old"),
        batch(2, 0, 0, topic_id="new", at={P0: 30}),
        batch(3, 0, 20, topic_id="new"),
    ]
    run(shared, table, landed[:1])
    run(shared, table, landed[:2])
    with pytest.raises(Killed):
        run(MemoryStore(shared, Fuse(1, True)), table, landed)
    run(shared, table, landed)
    assert sorted(table.rows) == expected(landed)


def test_offsets_that_went_back_are_refused() -> None:
    shared, table = MemoryStore(), FakeTable()
    run(shared, table, [batch(1, 0, 25)])
    run(shared, table, [batch(1, 0, 25), batch(2, 25, 50)])
    with pytest.raises(LineageBroken, match="case 'previous'"):
        run(shared, table, [batch(1, 0, 25), batch(2, 25, 50), batch(3, 0, 10)])


@pytest.mark.parametrize("to", [10, 40])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("kill", range(1, 10))
def test_reset_that_is_killed_is_applied_again(kill: int, after: bool, to: int) -> None:
    """At each of its effects, the write at the boundary `clickhouse.reset` among them.

    What is read again is there twice, as if nothing had been killed.
    """
    shared, table = MemoryStore(), FakeTable()
    landed = [batch(1, 0, 30), batch(2, to, to, at={P0: 30}), batch(3, to, to + 20)]
    run(shared, table, landed[:1])
    with pytest.raises(Killed):
        run(MemoryStore(shared, Fuse(kill, after)), table, landed)
    table.tokens.clear()
    run(shared, table, landed)
    assert sorted(table.rows) == expected(landed)


def test_lost_state_is_filled_again_without_doubling() -> None:
    """KeeperMap is empty, the table is not: also where the refill itself dies."""
    table, landed = FakeTable(), [batch(1, 0, 30, topic_id="old"), batch(2, 0, 0, topic_id="new", at={P0: 30})]
    landed += [batch(3, 0, 20, topic_id="new"), batch(4, 20, 50, topic_id="new")]
    run(MemoryStore(), table, landed[:3])
    table.tokens.clear()
    shared = MemoryStore()
    for kill in range(1, 20):
        store = MemoryStore(shared, Fuse(kill, kill % 2 == 0))
        lease = store.lease()
        newer = [b for b in landed if not lease or not lease.committed or b.number > lease.committed.batch_number]
        if not newer:
            break
        begun = left_behind(lease, newer, "t")
        rest = newer[len(begun.batches) :] if begun else newer
        with suppress(Killed):
            steps = [*([begun] if begun else []), *cut(rest, 10, 2)]
            advance(store, table).run(lease or store.swap(None, Lease(refill_until=3)), steps)
        table.tokens.clear()
    assert sorted(table.rows) == expected(landed)
    assert state(shared) == (4, 0, "")


def test_sleeper_of_a_forgotten_state_writes_nothing_into_the_new_one() -> None:
    shared, table, landed = MemoryStore(), FakeTable(), batches(1)
    sleeper = shared.swap(None, Lease(epoch=57, owner="sleeper"))
    shared.row = None
    run(shared, table, landed)
    late = PartitionWrite(batch(9, 0, 25).batch, Phase.BEFORE, {P0: Span(0, 24)})
    with pytest.raises(Interrupted):
        shared.write(sleeper, late, shared.rows)


class TestLostIntermediateTable:
    """A step is half done when its landed batches are lost."""

    LANDED = (batch(1, 0, 30), batch(2, 30, 50), batch(3, 50, 70))

    @pytest.fixture(params=[3, 4, 5, 6, 7])
    def left(self, request: pytest.FixtureRequest) -> tuple[MemoryStore, FakeTable]:
        """Batch 1 is committed, the step of 2 and 3 is not; killed at each of its effects."""
        shared, table = MemoryStore(), FakeTable()
        run(shared, table, list(self.LANDED[:1]))
        with pytest.raises(Killed):
            run(MemoryStore(shared, Fuse(request.param)), table, list(self.LANDED))
        table.tokens.clear()
        return shared, table

    def test_another_batch_of_the_same_number_is_refused(self, left: tuple[MemoryStore, FakeTable]) -> None:
        other = replace(self.LANDED[1], batch=replace(self.LANDED[1].batch, commit_id="other"))
        with pytest.raises(LineageBroken, match="was begun and not finished"):
            run(*left, [self.LANDED[0], other])

    @pytest.mark.parametrize("ends", [[70], [100], [40, 70], [40, 60, 100], [33, 36, 39, 90]])
    def test_reset_to_the_committed_offsets_goes_on(self, left: tuple[MemoryStore, FakeTable], ends: list[int]) -> None:
        shared, table = left
        landed = [self.LANDED[0], batch(4, 30, 30, after="c1", at={P0: 30})]
        start = 30
        for number, end in enumerate(ends, start=5):
            landed.append(batch(number, start, end))
            start = end
            for kill in range(1, 9):
                with suppress(Killed):
                    run(MemoryStore(shared, Fuse(kill, kill % 2 == 0)), table, landed)
                table.tokens.clear()
            run(shared, table, landed)
        assert sorted(row[:3] for row in table.rows) == [("id", P0, n) for n in range(ends[-1])]
        assert state(shared)[0] == landed[-1].number
        assert all(row.phase is Phase.AFTER for row in shared.partitions([P0, P1]).values())
