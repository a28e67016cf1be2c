"""The committed state out of table metadata: rollback, expiry, foreign snapshots, tag and property."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import nullcontext
from unittest.mock import Mock
from uuid import UUID

import pytest
from pyiceberg.table import Table

from jobs.batch import LandedBatches
from jobs.destinations.iceberg.spec import IcebergTable
from jobs.destinations.iceberg.state import committed_state
from jobs.iceberg import landed_batches as of_landed
from jobs.iceberg.history import PipelineBranch, state_properties
from jobs.iceberg.landed_batches import landed_batches
from jobs.iceberg.table_property import KEPT_FROM, property_prefix
from jobs.landed_properties import landed_from_properties, landed_to_properties
from resources.errors import TableReplaced
from tests.kit import history
from tests.kit.batches import committed, landed

OTHERS = {"written-by": "somebody"}


def state(number: int, pipeline: str = "p") -> dict[str, str]:
    return committed(number, pipeline=pipeline).to_properties()


TAG = PipelineBranch("p").tag


LINE = [(1, None, state(1)), (2, 1, state(2)), (3, 2, state(3))]
# Of main, at 9, the ancestors down to 8 are known.
BEGUN = {"total-data-files": "2", "added-data-files": "2"}
CUT = [(8, 7, OTHERS), (9, 8, OTHERS)]


def mirrored(number: int, branch: str = "main") -> dict[str, str]:
    return state_properties(committed(number), branch)


@pytest.mark.parametrize(
    ("snapshots", "refs", "properties", "known", "undone"),
    [
        pytest.param([], {}, {}, None, None, id="an empty table"),
        pytest.param([(1, None, {})], {"main": 1}, {}, None, None, id="a table without our batches"),
        pytest.param(LINE, {"main": 3, TAG: 3}, {}, 3, None, id="the nearest ancestor rules"),
        pytest.param(
            [LINE[0], (2, 1, OTHERS), (3, 2, {}), (4, 3, state(7, "q"))], {"main": 4, TAG: 1}, {}, 1, None,
            id="foreign snapshots and maintenance are passed over",
        ),
        pytest.param(LINE, {"main": 1, TAG: 3}, {}, 1, 3, id="a rollback, by the tag"),
        pytest.param(LINE[:1], {"main": 1}, mirrored(3), 1, 3, id="a rollback, by the property where the tag is gone"),
        pytest.param(
            [(1, None, OTHERS), (2, 1, state(1))], {"main": 1, TAG: 2}, {}, None, 1,
            id="a rollback before the first batch",
        ),
        pytest.param([*LINE, (4, 1, state(4))], {"main": 4, TAG: 4}, {}, 4, None, id="going on under skip ends it"),
        pytest.param(
            [(2, 1, state(2)), *CUT], {"main": 9, TAG: 2}, {}, 2, None,
            id="the tag stands in where expiry has cut the ancestry",
        ),
        pytest.param(
            [(2, 1, state(2)), (8, None, OTHERS), CUT[1]], {"main": 9, TAG: 2}, {}, 2, None,
            id="the tag stands in where pyiceberg has, which names no parent that is gone",
        ),
        pytest.param(
            [(2, 1, state(2)), (8, None, BEGUN), CUT[1]], {"main": 9, TAG: 2}, {}, None, 2,
            id="a table that was replaced begins from nothing",
        ),
        *(
            pytest.param(
                [(2, 1, state(2)), (8, None, {**BEGUN, "operation": operation, "deleted-data-files": "3"}), CUT[1]],
                {"main": 9, TAG: 2}, {}, 2, None, id=f"one whose files were all rewritten does not: {operation}",
            )
            for operation in ("replace", "overwrite")
        ),
        pytest.param(
            [(3, 2, OTHERS), (4, 3, state(4)), (5, 4, state(5))], {"main": 3, TAG: 5}, {}, None, 5,
            id="a rollback to where the state has expired",
        ),
        pytest.param(CUT, {"main": 9}, mirrored(2), 2, None, id="the property stands in where the tag has expired too"),
        # All ancestors are known and none is ours: the table was recreated or rolled back.
        pytest.param(
            [(8, None, OTHERS), CUT[1]], {"main": 9}, mirrored(2), None, 2, id="nothing stands in past the root"
        ),
        pytest.param(
            [(1, None, OTHERS), (2, 1, state(5))], {"main": 1, "audit": 2}, mirrored(5, "audit"), None, None,
            id="another branch's state",
        ),
        pytest.param(
            [LINE[0], (2, 1, state(9, "q"))], {"main": 2, TAG: 2}, {}, 1, None,
            id="a tag that another pipeline has moved is not believed",
        ),
    ],
)  # fmt: skip
def test_committed_state(
    snapshots: Sequence[tuple[int, int | None, dict[str, str]]],
    refs: dict[str, int],
    properties: dict[str, str],
    known: int | None,
    undone: int | None,
) -> None:
    found = PipelineBranch("p").history(history.table(snapshots, refs, properties))
    expected = [committed(number) if number else None for number in (known, undone)]
    assert [found.committed, found.undone] == expected


@pytest.mark.parametrize(
    ("snapshots", "known"),
    [
        ([(3, 2, OTHERS), (4, 3, state(4))], False),
        ([(3, None, OTHERS), (4, 3, state(4))], True),
        ([(3, None, state(3)), (4, 3, state(4))], True),
    ],
)
def test_a_rollback_says_whether_it_is_known_to_which_batch(
    snapshots: Sequence[tuple[int, int | None, dict[str, str]]], known: bool
) -> None:
    assert PipelineBranch("p").history(history.table(snapshots, {"main": 3, TAG: 4})).is_known is known


@pytest.mark.parametrize(("mode", "refused"), [("append", True), ("delete", True), ("upsert", False)])
def test_rows_that_may_be_there_are_not_replayed_into_tables_with_a_row_a_change(mode: str, refused: bool) -> None:
    found = history.table([(3, 2, OTHERS), (4, 3, state(4))], {"main": 3, TAG: 4})
    table = IcebergTable.model_validate({"kind": "iceberg", "table": "a.b", "mode": mode, "on_rollback": "replay"})
    with pytest.raises(TableReplaced, match="which batch it stands at is not known") if refused else nullcontext():
        assert committed_state(found, "p", table) is None


@pytest.mark.parametrize(
    ("snapshots", "refs", "batch", "found"),
    [
        pytest.param(LINE, {"main": 3, TAG: 3}, 4, (3, 3), id="the table has not got it"),
        pytest.param(LINE, {"main": 3, TAG: 3}, 3, (2, 2), id="it has got it meanwhile"),
        pytest.param(
            [*LINE[:2], (3, 2, OTHERS), (4, 3, state(4))], {"main": 4}, 4, (3, 2), id="and was maintained before"
        ),
        pytest.param([*LINE, (4, 3, OTHERS)], {"main": 4, TAG: 3}, 2, (1, 1), id="and was maintained since"),
        pytest.param([(2, 1, state(2)), *CUT], {"main": 9, TAG: 2}, 3, (9, 2), id="the tag says what the table has"),
        pytest.param(LINE[1:], {"main": 3, TAG: 3}, 2, None, id="what was before has expired"),
        pytest.param([*LINE, (4, 1, state(4))], {"main": 4, TAG: 4}, 4, (1, 1), id="it was rolled back and went on"),
        pytest.param([], {}, 1, None, id="an empty table"),
    ],
)
def test_snapshot_before_a_batch(
    snapshots: Sequence[tuple[int, int | None, dict[str, str]]],
    refs: dict[str, int],
    batch: int,
    found: tuple[int, int] | None,
) -> None:
    before = PipelineBranch("p").snapshot_before(history.table(snapshots, refs), batch)
    assert (before and (before[0].snapshot_id, before[1])) == found


def test_other_pipelines_and_branches_have_states_of_their_own() -> None:
    table = history.table([(1, None, state(7, "q")), (2, 1, state(5))], {"main": 1, "audit": 2})
    assert PipelineBranch("q").history(table).committed == committed(7, pipeline="q")
    assert PipelineBranch("p", "audit").history(table).committed == committed(5)


@pytest.mark.parametrize(
    ("more", "undone"),
    [
        pytest.param({}, None, id="the file names another branch than before"),
        pytest.param({PipelineBranch("p", "audit").tag: 3}, None, id="main was moved to the branch, which is gone"),
        pytest.param({PipelineBranch("p", "audit").tag: 4}, 4, id="with batches that main has not"),
    ],
)
def test_a_branch_that_does_not_exist_yet_begins_with_the_state_of_main(
    more: dict[str, int], undone: int | None
) -> None:
    found = PipelineBranch("p", "audit").history(history.table([*LINE, (4, 3, state(4))], {"main": 3, **more}, {}))
    assert found.committed == committed(3)
    assert found.undone == (committed(undone) if undone else None)


def test_a_new_branch_begins_with_mains_state_also_where_the_snapshots_of_it_have_expired() -> None:
    table = history.table([(2, 1, state(2)), *CUT], {"main": 9, TAG: 2}, {})
    assert PipelineBranch("p", "audit").history(table) == PipelineBranch("p").history(table)
    assert PipelineBranch("p", "audit").history(table).committed == committed(2)


@pytest.mark.parametrize(
    ("head", "refs", "known"),
    [
        pytest.param(8, {}, 2, id="made by us a moment ago; others have written to main since"),
        pytest.param(10, {}, None, id="others have written to it: nobody knows what it had"),
        pytest.param(8, {TAG: 9}, None, id="made before main had the batch"),
    ],
)
def test_a_branch_that_nobody_has_written_to_has_mains_state(
    head: int, refs: dict[str, int], known: int | None
) -> None:
    newest = state(9) if refs else OTHERS
    snapshots = [(2, 1, state(2)), (8, 7, OTHERS), (9, 8, newest), (10, 8, OTHERS)]
    table = history.table(snapshots, {"main": 9, TAG: 2, "audit": head, **refs}, {})
    found = PipelineBranch("p", "audit").history(table)
    assert (found.committed, found.undone) == (committed(known) if known else None, None)


@pytest.mark.parametrize(("mode", "refused"), [("append", True), ("delete", True), ("upsert", False)])
def test_a_branch_of_which_nobody_knows_what_it_has_gets_no_row_twice(mode: str, refused: bool) -> None:
    """Somebody made it from main, which has got batches since, and whose older snapshots have expired."""
    snapshots = [(2, 1, state(2)), (8, 7, OTHERS), (10, 9, state(3))]
    refs = {"main": 10, TAG: 10, "audit": 8}
    of_main, of_nobody = (history.table(snapshots, refs, mirror) for mirror in (mirrored(3), {}))
    options = {"kind": "iceberg", "table": "a.b", "mode": mode, "branch": "audit", "on_rollback": "skip"}
    table = IcebergTable.model_validate(options)
    with pytest.raises(TableReplaced, match="which batches the branch has") if refused else nullcontext():
        assert committed_state(of_main, "p", table) is None
    assert committed_state(of_nobody, "p", table) is None, "main has no batch of the pipeline either"


def test_a_branch_that_was_dropped_is_undone_whatever_has_expired_on_main() -> None:
    """Main has its own snapshots, of which none has this branch's batch."""
    table = history.table([(2, 1, state(2)), *CUT], {"main": 9, PipelineBranch("p", "audit").tag: 2}, {})
    found = PipelineBranch("p", "audit").history(table)
    assert (found.committed, found.undone, found.is_known) == (None, committed(2), True)


def test_a_new_branch_does_not_begin_with_rows_of_unknown_batches() -> None:
    table = history.table([(3, 2, OTHERS), (4, 3, state(4))], {"main": 3, TAG: 4}, {})
    found = PipelineBranch("p", "audit").history(table)
    assert (found.committed, found.undone, found.is_known) == (None, committed(4), False)


def test_names_of_pipelines_and_branches_never_meet() -> None:
    assert PipelineBranch("a_b").tag != PipelineBranch("a", "b").tag
    mirrored = {
        **state_properties(committed(1, pipeline="a"), "b"),
        **state_properties(committed(2, pipeline="a"), "main"),
    }
    table = history.table([(9, 8, OTHERS)], {"main": 9, "b": 9}, mirrored)
    assert PipelineBranch("a").history(table).committed == committed(2, pipeline="a")
    assert PipelineBranch("a", "b").history(table).committed == committed(1, pipeline="a")
    assert property_prefix("a", "b") == "batchmerge.a.b."


def test_landed_batches_ascend_and_know_whether_they_are_complete() -> None:
    summaries = {n: landed_to_properties(landed(n)) for n in (1, 2, 3)}
    whole = history.table([(1, None, summaries[1]), (2, 1, {}), (3, 2, summaries[2])], {"main": 3})
    found = landed_batches(whole, "p")
    assert ([b.number for b in found.batches], [b.snapshot_id for b in found.batches], found.complete) == (
        [1, 2],
        [1, 3],
        True,
    )
    cut = history.table([(3, 2, summaries[2]), (4, 3, summaries[3])], {"main": 4})
    found = landed_batches(cut, "p")
    assert ([b.number for b in found.batches], found.complete) == ([2, 3], False)
    assert landed_batches(history.table([], {}), "p") == LandedBatches()
    kept = history.table(
        [(1, None, summaries[1]), (2, 1, summaries[2]), (3, 2, summaries[3])], {"main": 3}, KEPT_FROM.written(3, "p")
    )
    found = landed_batches(kept, "p")
    assert ([b.number for b in found.batches], found.complete) == ([3], False), "snapshots not expired yet"


def test_summaries_of_a_long_history_are_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where one table has more than are kept: then it is the only one."""
    parsed = Mock(side_effect=landed_from_properties)
    monkeypatch.setattr(of_landed, "landed_from_properties", parsed)
    monkeypatch.setattr(of_landed, "_MOST_KNOWN", 5)
    numbers = range(1, 8)
    snapshots = [(n, n - 1 or None, landed_to_properties(landed(n))) for n in numbers]
    long, short = history.table(snapshots, {"main": 7}), history.table(snapshots[:1], {"main": 1})
    for _ in range(2):
        assert [b.number for b in landed_batches(long, "p").batches] == list(numbers)
    assert parsed.call_count == 7
    landed_batches(short, "p")
    landed_batches(long, "p")
    assert parsed.call_count == 7 + 1 + 7, "more than are kept: the table that was looked at last"


def test_summaries_of_hundreds_of_tables_stay_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step of a pipeline with `for_each` looks at all of them in turn."""
    parsed = Mock(side_effect=of_landed._report)
    monkeypatch.setattr(of_landed, "_report", parsed)
    monkeypatch.setattr(of_landed, "_KNOWN", OrderedDict())
    one = history.table([(n, n - 1 or None, OTHERS) for n in range(1, 51)], {"main": 50})
    metadata = [one.metadata.model_copy(update={"table_uuid": UUID(int=n)}) for n in range(500)]
    for each in metadata * 2:
        landed_batches(Table(("n", "t"), each, "", one.io, one.catalog), "p")
    assert parsed.call_count == 500 * 50
