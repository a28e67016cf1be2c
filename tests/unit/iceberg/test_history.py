"""The committed state out of table metadata: rollback, expiry, foreign snapshots, tag and property."""

from __future__ import annotations

from jobs.batch import LandedBatches, landed_to_properties
from jobs.iceberg.history import landed_batches, property_prefix, read_history, state_properties, tag_name
from tests.kit.batches import committed, landed
from tests.kit.history import table_metadata

OTHERS = {"written-by": "somebody"}


def state(number: int, pipeline: str = "p") -> dict[str, str]:
    return committed(number, pipeline=pipeline).to_properties()


TAG = tag_name("p", "main")


def test_new_table_has_no_state() -> None:
    for table in (table_metadata([], {}), table_metadata([(1, None, {})], {"main": 1})):
        found = read_history(table, "p", "main")
        assert (found.committed, found.undone) == (None, None)


def test_nearest_ancestor_with_our_state_rules() -> None:
    table = table_metadata([(1, None, state(1)), (2, 1, state(2)), (3, 2, state(3))], {"main": 3, TAG: 3})
    found = read_history(table, "p", "main")
    assert (found.committed, found.undone) == (committed(3), None)


def test_foreign_snapshots_and_maintenance_are_passed_over() -> None:
    table = table_metadata(
        [(1, None, state(1)), (2, 1, OTHERS), (3, 2, {}), (4, 3, state(7, "q"))], {"main": 4, TAG: 1}
    )
    assert read_history(table, "p", "main").committed == committed(1)
    assert read_history(table, "q", "main").committed == committed(7, pipeline="q")


def test_rollback_is_noticed_by_the_tag() -> None:
    snapshots = [(1, None, state(1)), (2, 1, state(2)), (3, 2, state(3))]
    found = read_history(table_metadata(snapshots, {"main": 1, TAG: 3}), "p", "main")
    assert (found.committed, found.undone) == (committed(1), committed(3))


def test_rollback_is_noticed_by_the_property_when_the_tag_is_gone() -> None:
    mirrored = state_properties(committed(3), "main")
    found = read_history(table_metadata([(1, None, state(1))], {"main": 1}, mirrored), "p", "main")
    assert (found.committed, found.undone) == (committed(1), committed(3))


def test_rollback_before_the_first_batch() -> None:
    table = table_metadata([(1, None, OTHERS), (2, 1, state(1))], {"main": 1, TAG: 2})
    found = read_history(table, "p", "main")
    assert (found.committed, found.undone) == (None, committed(1))


def test_going_on_after_a_rollback_under_skip_ends_it() -> None:
    snapshots = [(1, None, state(1)), (2, 1, state(2)), (3, 2, state(3)), (4, 1, state(4))]
    found = read_history(table_metadata(snapshots, {"main": 4, TAG: 4}), "p", "main")
    assert (found.committed, found.undone) == (committed(4), None)


def test_tag_stands_in_where_expiry_has_cut_the_ancestry() -> None:
    # 2 is our snapshot, kept by its tag; main is at 9, whose ancestors down to 8 are known.
    table = table_metadata([(2, 1, state(2)), (8, 7, OTHERS), (9, 8, OTHERS)], {"main": 9, TAG: 2})
    found = read_history(table, "p", "main")
    assert (found.committed, found.undone) == (committed(2), None)


def test_property_stands_in_where_the_tag_has_expired_too() -> None:
    table = table_metadata([(8, 7, OTHERS), (9, 8, OTHERS)], {"main": 9}, state_properties(committed(2), "main"))
    assert read_history(table, "p", "main").committed == committed(2)


def test_nothing_stands_in_past_the_root() -> None:
    # All ancestors are known and none is ours: the table was recreated or rolled back, whatever the property says.
    table = table_metadata([(8, None, OTHERS), (9, 8, OTHERS)], {"main": 9}, state_properties(committed(2), "main"))
    found = read_history(table, "p", "main")
    assert (found.committed, found.undone) == (None, committed(2))


def test_branches_have_states_of_their_own() -> None:
    snapshots = [(1, None, OTHERS), (2, 1, state(5))]
    table = table_metadata(snapshots, {"main": 1, "audit": 2}, state_properties(committed(5), "audit"))
    assert read_history(table, "p", "audit").committed == committed(5)
    found = read_history(table, "p", "main")
    assert (found.committed, found.undone) == (None, None)


def test_names_of_pipelines_and_branches_never_meet() -> None:
    assert tag_name("a_b", "main") != tag_name("a", "b")
    mirrored = {
        **state_properties(committed(1, pipeline="a"), "b"),
        **state_properties(committed(2, pipeline="a"), "main"),
    }
    table = table_metadata([(9, 8, OTHERS)], {"main": 9, "b": 9}, mirrored)
    found = read_history(table, "a", "main").committed
    assert found
    assert found.batch_number == 2
    on_b = read_history(table, "a", "b").committed
    assert on_b
    assert on_b.batch_number == 1
    assert property_prefix("a", "b") == "batchmerge.a.b."


def test_tag_that_another_pipeline_has_moved_is_not_believed() -> None:
    table = table_metadata([(1, None, state(1)), (2, 1, state(9, "q"))], {"main": 2, TAG: 2})
    found = read_history(table, "p", "main")
    assert (found.committed, found.undone) == (committed(1), None)


def test_landed_batches_ascend_and_know_whether_they_are_complete() -> None:
    summaries = {n: landed_to_properties(landed(n)) for n in (1, 2, 3)}
    whole = table_metadata([(1, None, summaries[1]), (2, 1, {}), (3, 2, summaries[2])], {"main": 3})
    found = landed_batches(whole, "p")
    assert ([b.number for b in found.batches], [b.snapshot_id for b in found.batches], found.complete) == (
        [1, 2],
        [1, 3],
        True,
    )
    cut = table_metadata([(3, 2, summaries[2]), (4, 3, summaries[3])], {"main": 4})
    found = landed_batches(cut, "p")
    assert ([b.number for b in found.batches], found.complete) == ([2, 3], False)
    assert landed_batches(table_metadata([], {}), "p") == LandedBatches()
