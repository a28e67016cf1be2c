"""A table holds what the records say, however the log is cut, whoever merges beside it, wherever a run dies."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from hypothesis import given, seed
from hypothesis import strategies as st

from jobs import protocol
from jobs.destinations.registry import kinds
from jobs.merged import MergedBatches
from jobs.offsets import TopicPartition
from jobs.pipeline import Pipeline
from jobs.replay.from_kafka import from_offsets, reread_from_kafka
from resources.errors import BatchmergeError, LineageBroken
from tests.destinations.conftest import MakeStory, every_kind
from tests.kit import model
from tests.kit.examples import SEED, few
from tests.kit.interrupting import at_failpoints, die_at_each
from tests.kit.kind import KindUnderTest
from tests.kit.records import COLUMNS, Record, put, random_changes
from tests.kit.story import COORDINATES, Story, Target, on_targets

RECORDS = 150
Cuts = Sequence[int]
# How many landed batches each merge takes; the last one takes the rest.
coalescing = st.lists(st.integers(1, 3), max_size=3)


def landed(log: Story, sizes: Cuts) -> Story:
    """By a pipeline of its own, in batches of these sizes and one of the rest."""
    story = Story.of(log.engine.flow.topic, log.engine.connections, log.engine.spark)
    story.records = log.records
    for size in sizes:
        story.edited(batch={"max_records": size}).engine.land(1)
    story.land()
    return story


@pytest.fixture(scope="module")
def log(new_story: MakeStory) -> Story:
    """One log, which many pipelines land."""
    log = new_story(partitions=2)
    log.produce(*random_changes(7, RECORDS, 15, 2, bad=0.05))
    return log


@pytest.fixture(scope="module", autouse=True)
def no_group_is_small() -> Iterator[None]:
    """Tables that can copy row groups of landed files do so wherever they take every row."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jobs.changes.whole_groups.SMALL_ROWS", 0)
        yield


@pytest.fixture(scope="module")
def cuts(log: Story) -> list[tuple[Cuts, Story]]:
    """The log, cut at other offsets in each session."""
    dice = random.Random(SEED)
    points = [[0, *sorted(dice.sample(range(1, RECORDS), 3))] for _ in range(2)]
    sizes = [[after - before for before, after in pairwise(cut)] for cut in points]
    return [(one, landed(log, one)) for one in sizes]


@pytest.fixture(scope="module")
def story(cuts: list[tuple[Cuts, Story]]) -> Story:
    return cuts[0][1]


def in_the_end_equal(target: Target, sizes: Cuts, story: Story, coalesced: list[int]) -> None:
    table = story.table(target)
    for count in coalesced:
        table.merge_some(count)
    table.merge()
    assert table.rows() == model.expected(story.records, target.mode), (SEED, sizes, coalesced)
    assert table.destination.committed() == table.engine.pipeline.intermediate.committed()
    assert table.merge() is None, "nothing new changes nothing"


@on_targets()
def test_table_equals_the_model_however_the_log_is_cut(target: Target, cuts: list[tuple[Cuts, Story]]) -> None:
    dice = random.Random(f"{SEED} {target}")  # other dice for each target
    in_the_end_equal(target, *dice.choice(cuts), dice.choices((1, 2), k=dice.randint(1, 2)))


@pytest.mark.slow
@every_kind
@seed(SEED)
@few(8)
@given(sizes=st.lists(st.integers(1, RECORDS // 2), max_size=5), coalesced=coalescing)
def test_tables_equal_the_model_with_any_cuts(
    kind: KindUnderTest, log: Story, sizes: list[int], coalesced: list[int]
) -> None:
    story = landed(log, sizes)
    for mode in kind.modes:
        in_the_end_equal(Target(kind, mode), sizes, story, coalesced)


@on_targets(always="upsert_delete", shared=True)
def test_layout_of_a_table_makes_no_difference(target: Target, story: Story) -> None:
    for layout in target.kind.layouts:
        table = story.table(target, **layout)
        table.merge_some(2)
        table.merge()
        assert table.rows() == model.expected(story.records, target.mode), layout


@pytest.fixture(scope="module")
def moved_keys(new_story: MakeStory) -> Story:
    """A changed key is a delete of the old one, with its tombstone, and an insert of the new one."""
    story = new_story()
    story.produce(put(1, "one"), put(2, "two"), put(3, "three"))
    story.land()
    gone = [Record(0, key, None) for key in (1, 2, 3)]
    story.produce(put(1, "one", "d"), gone[0], put(2, "two", "d"), gone[1], put(2, "one", "c"), put(1, "two", "c"))
    story.land()
    story.produce(put(3, "three", "d"), gone[2], put(9, "three", "c"))
    story.land()
    return story


@on_targets("upsert_delete", "delete", always="upsert_delete", shared=True)
def test_row_whose_key_changes_moves(target: Target, moved_keys: Story) -> None:
    table = moved_keys.table(target)
    table.merge_some(1)
    table.merge()
    assert table.rows() == [(1, "two", 1.0), (2, "one", 1.0), (9, "three", 1.0)]


# A log of all changes, and a table whose deleted rows stay.
LOG = {
    "append": [
        (1, "a", "insert"),
        (1, "aa", "update"),
        (1, "last", "delete"),
        (2, None, "delete"),
        (2, "b", "insert"),
        (3, "c", "insert"),
        (4, None, "delete"),
        (4, "d", "insert"),
        (4, "new", "insert"),
    ],
    "upsert": [(1, "last", "delete"), (2, None, "delete"), (3, "c", "insert"), (4, "new", "insert")],
}


@on_targets("append", "upsert", always="bigquery-append iceberg-upsert clickhouse-upsert")
def test_deletes_are_rows_where_the_file_says_so(target: Target, new_story: MakeStory) -> None:
    story = new_story().reading({**COLUMNS, "name": "string not null", "amount": "double not null"})
    changes = [put(1, "aa"), put(1, "last", "d"), Record(0, 2, None), Record(0, 4, None)]
    created = [put(1, "a", "c"), put(2, "b", "c"), put(4, "d", "c")]
    story.land_each([created, changes, [put(3, "c", "c"), put(4, "new", "c")]])
    table = story.table(target, deletes="rows", metadata_columns=[*COORDINATES, "op as what"])
    table.merge_some(1)
    table.merge()
    expected = LOG[target.mode]

    def rows() -> list[tuple[object, ...]]:
        return model.sorted_rows((row["id"], row["name"], row["what"]) for row in table.select("id", "name", "what"))

    assert rows() == expected
    assert table.replay(1, 3)
    assert rows() == expected, "a replay changes nothing"
    table.remove(below=3)
    assert table.replay(1, 3)
    assert rows() == expected
    verdict = table.verify()
    assert (verdict.wrong, verdict.compared) == ([], len(expected))
    reread_from_kafka(table.engine.pipeline, from_offsets({TopicPartition(story.engine.flow.topic, 0): 0}))
    assert table.merge()
    assert rows() == expected
    table.remove(below=2)
    assert table.replay(1, 4)
    assert rows() == expected
    assert not table.verify().wrong


@on_targets(always="upsert_delete", shared=True)
def test_lineage_that_is_broken_is_refused(target: Target, moved_keys: Story) -> None:
    table = moved_keys.table(target)
    table.merge()
    before, state = table.rows(), table.destination.committed()
    landing = table.engine.pipeline.intermediate

    def roll(to: int | None) -> None:
        assert to
        landing.catalog.require(landing.identifier).manage_snapshots().set_current_snapshot(to).commit()

    newest = landing.catalog.require(landing.identifier).current_snapshot()
    assert newest
    roll(newest.parent_snapshot_id)
    try:
        with pytest.raises(LineageBroken, match=r"batch 3 is committed here, .* ends at batch 2") as caught:
            table.merge()
        assert "batchmerge offsets reset" in caught.value.remedy
        with pytest.raises(LineageBroken):
            table.replay(1, 2)
    finally:
        roll(newest.snapshot_id)
    assert (table.rows(), table.destination.committed()) == (before, state)
    assert table.merge() is None, "rolled forward again, all is well"


@on_targets(always="upsert_delete")
def test_two_merges_at_once_commit_once(target: Target, story: Story) -> None:
    """One stands between its data and its commit while the other one does all of its work."""
    table = story.table(target)
    table.destination.prepare()
    there, go_on, seen = threading.Event(), threading.Event(), list[str]()

    def wait(name: str) -> None:
        if name == target.kind.written and threading.current_thread() is not threading.main_thread() and not seen:
            seen.append(name)
            there.set()
            assert go_on.wait(600)

    def merge_slowly() -> MergedBatches | BatchmergeError | None:
        """In sessions of its own."""
        pipeline = Pipeline(table.engine.flow.name, table.engine.pipeline.spec, table.engine.connections, "slow")
        try:
            return protocol.merge(pipeline, pipeline.destinations()[0])
        except BatchmergeError as problem:
            return problem

    with at_failpoints(wait), ThreadPoolExecutor(1) as pool:
        slow = pool.submit(merge_slowly)
        try:
            while not there.wait(0.1):
                assert not slow.done(), slow.result()
            fast = table.merge()
            overlapped = not slow.done()
        finally:
            go_on.set()
        outcome = slow.result()
    assert overlapped
    assert fast
    assert fast.after == table.destination.committed()
    assert not isinstance(outcome, MergedBatches), "both say that they committed"
    assert table.merge() is None
    assert table.rows() == model.expected(story.records, target.mode)


@on_targets(always="upsert_delete")
def test_run_that_is_killed_at_any_boundary_is_completed_by_the_next(target: Target, story: Story) -> None:
    table = story.table(target)

    def merge() -> None:
        """In two steps: what follows a commit is reached only where more is there to merge."""
        table.merge_some(1)
        table.merge()

    died = die_at_each(merge)
    assert set(kinds()[target.kind.name].failpoints) <= set(died)
    assert target.kind.written in died
    assert table.rows() == model.expected(story.records, target.mode), died
    assert table.destination.committed() == table.engine.pipeline.intermediate.committed()
