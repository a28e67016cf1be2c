"""The steps of a merge against the twin in memory: killed before and after any outside effect, any number of times."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.batch import Batch, Counts, LandedBatch
from jobs.destinations.clickhouse.advance import Advance, Inserted
from jobs.destinations.clickhouse.chunks import Chunk
from jobs.destinations.clickhouse.lease import Lease
from jobs.offsets import OffsetRange, TopicPartition
from jobs.watermark import Watermark
from resources.errors import CommitFailed, Interrupted, LineageBroken
from tests.unit.clickhouse.twin import Fuse, Killed, MemoryStore

TPS = [TopicPartition("t", 0), TopicPartition("t", 1)]


@dataclass
class FakeTable:
    """Rows by coordinates, and the tokens that it remembers."""

    rows: list[tuple[TopicPartition, int]] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)

    def insert(self, chunk: Chunk, token: str, missing: bool) -> None:
        if token in self.tokens:
            return
        self.tokens.add(token)
        new = [(chunk.tp, offset) for offset in range(chunk.span.first, chunk.span.last + 1)]
        self.rows += [row for row in new if not (missing and row in self.rows)]


def batches(count: int, size: int = 25) -> list[LandedBatch]:
    found, before = [], None
    for n in range(1, count + 1):
        # The second partition has nothing new in every other batch, and a gap after it.
        quiet = OffsetRange(n * 3, n * 3 + 3 * (n % 2))
        ranges = {TPS[0]: OffsetRange((n - 1) * size, n * size), TPS[1]: quiet}
        batch = Batch("p", n, f"c{n}", before, ranges, {"t": "id"}, 0, "h")
        found.append(LandedBatch(batch, Counts(), Watermark(), n))
        before = batch.commit_id
    return found


def advance(store: MemoryStore, table: FakeTable, chunk_rows: int = 10) -> Advance:
    def insert(held: Lease, landed: LandedBatch, chunks: list[Chunk], recovering: bool) -> Inserted:
        for chunk in chunks:
            ends = store.fuse.burn()
            now = store.lease()
            if now is None or now.owner != held.owner:
                raise Interrupted("the fence")
            table.insert(chunk, chunk.token("p", "t", landed.batch.commit_id), recovering)
            if ends:
                raise Killed
        return Inserted(rows=len(chunks))

    return Advance(store, "t", "run", chunk_rows, ("h:1",), "id", lambda _: None, insert)


def run(store: MemoryStore, table: FakeTable, landed: list[LandedBatch], chunk_rows: int = 10) -> None:
    lease = store.lease()
    done = lease.committed.batch_number if lease and lease.committed else 0
    newer = [b for b in landed if b.number > done]
    if newer:
        advance(store, table, chunk_rows).run(lease, newer)


def expected(landed: list[LandedBatch]) -> list[tuple[TopicPartition, int]]:
    return sorted((tp, o) for b in landed for tp, r in b.batch.ranges.items() for o in range(r.start, r.end))


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 40), st.booleans(), st.booleans(), st.integers(5, 30)), max_size=6))
def test_any_kills_lose_and_double_nothing(kills: list[tuple[int, bool, bool, int]]) -> None:
    shared, table, landed = MemoryStore(), FakeTable(), batches(3)
    for at, after, forgets, chunk_rows in kills:
        try:
            run(MemoryStore(shared, Fuse(at, after)), table, landed, chunk_rows)
        except Killed:
            # Other writers may have used up the window; a batch that is under way is looked up by coordinates.
            if forgets:
                table.tokens.clear()
    run(shared, table, landed)
    assert sorted(table.rows) == expected(landed)
    lease = shared.lease()
    assert lease
    assert lease.committed
    assert (lease.committed.batch_number, lease.batch, lease.owner) == (3, 0, "")


def test_run_that_was_taken_over_is_interrupted() -> None:
    shared, table, landed = MemoryStore(), FakeTable(), batches(2)
    old = advance(shared, table).take(None, landed[0])
    run(shared, table, landed)
    with pytest.raises(Interrupted):
        advance(shared, table)._apply(old, landed[0], False)
    assert sorted(table.rows) == expected(landed)


def test_batch_that_was_landed_again_as_another_is_refused() -> None:
    shared, table, landed = MemoryStore(), FakeTable(), batches(2)
    with pytest.raises(Killed):
        run(MemoryStore(shared, Fuse(2, True)), table, landed)
    other = replace(landed[0], batch=replace(landed[0].batch, commit_id="other"))
    with pytest.raises(LineageBroken, match="was begun and not finished"):
        run(shared, table, [other])


def test_stale_view_of_the_lease_is_refused() -> None:
    shared, table, landed = MemoryStore(), FakeTable(), batches(2)
    seen = shared.lease()
    run(shared, table, landed[:1])
    with pytest.raises(CommitFailed):
        advance(shared, table).run(seen, landed)


def test_recreated_topic_begins_anew() -> None:
    shared, table = MemoryStore(), FakeTable()
    (first,) = batches(1)
    run(shared, table, [first])
    again = replace(
        first.batch, number=2, commit_id="c2", previous_commit_id="c1", topic_ids={"t": "another"},
        ranges={TPS[0]: OffsetRange(0, 5)},
    )  # fmt: skip
    table.rows.clear()
    run(shared, table, [first, replace(first, batch=again)])
    assert sorted(table.rows) == [(TPS[0], n) for n in range(5)]


def test_offsets_that_went_back_are_refused() -> None:
    shared, table = MemoryStore(), FakeTable()
    first, second = batches(2)
    run(shared, table, [first, second])
    back = replace(second.batch, number=3, commit_id="c3", previous_commit_id="c2", ranges={TPS[0]: OffsetRange(0, 10)})
    with pytest.raises(LineageBroken, match="case 'previous'"):
        run(shared, table, [first, second, replace(second, batch=back)])
