"""One try at one commit, on a real SQLite catalog: what is published, what is refused, what is left. No Spark here."""

from __future__ import annotations

import time
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table.refs import SnapshotRefType

from jobs.batch import CommittedState
from jobs.iceberg.append import Append
from jobs.iceberg.attempt import Attempt
from jobs.iceberg.branches import attempt_branch
from jobs.iceberg.hand_over import HandOver
from jobs.iceberg.history import History, PipelineBranch, state_properties
from jobs.iceberg.schema import iceberg_schema
from resources.errors import (
    CommitFailed,
    CommitStateUnknown,
    ConfigurationError,
    InvariantBroken,
    TableReplaced,
    Unavailable,
)
from resources.iceberg import IcebergCatalog
from tests.kit.batches import committed

NAME = "n.t"
ROWS = pa.table({"id": pa.array([1, 2], pa.int64())})
MORE = pa.table({"id": pa.array([3], pa.int64())})


@pytest.fixture
def catalog(lake: IcebergCatalog) -> IcebergCatalog:
    lake.create(NAME, iceberg_schema(ROWS.schema), properties={"format-version": "2"})
    return lake


def write(catalog: IcebergCatalog, attempt: Attempt, rows: pa.Table = ROWS) -> None:
    """What Spark does: an append to the attempt's branch that carries the attempt's mark."""
    catalog.require(NAME).append(
        rows, snapshot_properties=attempt.summary, branch=attempt.path[-1].removeprefix("branch_")
    )


def begin(catalog: IcebergCatalog, expected: CommittedState | None, **options: object) -> Attempt:
    return Attempt(catalog, NAME, "p", expected, **options)  # type: ignore[arg-type]


def publish(attempt: Attempt, state: CommittedState) -> int:
    return attempt.publish_append(state.to_properties(), state_properties(state, "main"))


def advance(
    catalog: IcebergCatalog, before: CommittedState | None, after: CommittedState, rows: pa.Table = ROWS
) -> int:
    attempt = begin(catalog, before)
    write(catalog, attempt, rows)
    return publish(attempt, after)


def ids(catalog: IcebergCatalog) -> list[int]:
    return sorted(catalog.require(NAME).scan().to_arrow()["id"].to_pylist())


def now(catalog: IcebergCatalog) -> CommittedState | None:
    return PipelineBranch("p").history(catalog.require(NAME)).committed


def head(catalog: IcebergCatalog) -> int:
    snapshot = catalog.require(NAME).current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def roll_back(catalog: IcebergCatalog, snapshot: int) -> None:
    catalog.require(NAME).manage_snapshots().set_current_snapshot(snapshot_id=snapshot).commit()


def test_nothing_is_visible_before_it_is_published(catalog: IcebergCatalog) -> None:
    attempt = begin(catalog, None)
    write(catalog, attempt)
    assert (ids(catalog), now(catalog), attempt.added_rows()) == ([], None, 2)
    snapshot = publish(attempt, committed(1))
    table = catalog.require(NAME)
    assert (ids(catalog), now(catalog)) == ([1, 2], committed(1))
    assert set(table.metadata.refs) == {"main", PipelineBranch("p").tag}
    assert table.metadata.refs[PipelineBranch("p").tag].snapshot_id == snapshot == head(catalog)
    assert table.metadata.refs[PipelineBranch("p").tag].snapshot_ref_type == SnapshotRefType.TAG
    assert table.properties["batchmerge.p.commit-id"] == "c1"


def test_state_moves_where_nothing_was_written(catalog: IcebergCatalog) -> None:
    attempt = begin(catalog, None)
    assert attempt.added_rows() == 0
    attempt.publish_head(committed(1).to_properties(), state_properties(committed(1), "main"))
    assert (ids(catalog), now(catalog)) == ([], committed(1))


def test_who_comes_second_is_refused(catalog: IcebergCatalog) -> None:
    slow = begin(catalog, None)
    write(catalog, slow)
    advance(catalog, None, committed(1))
    with pytest.raises(CommitFailed, match="removed"):
        publish(slow, committed(1, commit_id="mine"))
    assert (ids(catalog), now(catalog)) == ([1, 2], committed(1))


def test_attempt_from_an_old_state_does_not_begin(catalog: IcebergCatalog) -> None:
    advance(catalog, None, committed(1))
    with pytest.raises(CommitFailed, match="commit c1 instead of none"):
        begin(catalog, None)


def test_two_attempts_that_swept_nothing_of_each_other(catalog: IcebergCatalog) -> None:
    """The branch of the slow one is put back: even so the compare-and-set on main refuses it."""
    slow = begin(catalog, None)
    write(catalog, slow)
    branch = slow.path[-1].removeprefix("branch_")
    head = catalog.require(NAME).metadata.refs[branch].snapshot_id
    advance(catalog, None, committed(1))
    catalog.require(NAME).manage_snapshots().create_branch(head, branch).commit()
    with pytest.raises(CommitFailed, match="committed state has changed"):
        publish(slow, committed(1, commit_id="mine"))
    with pytest.raises(CommitFailed, match="another writer"):
        slow.publish_head({}, {})
    assert ids(catalog) == [1, 2]


def test_append_is_rebased_on_another_writers_snapshot_without_writing_files_again(catalog: IcebergCatalog) -> None:
    attempt = begin(catalog, None)
    write(catalog, attempt)
    branch = attempt.path[-1].removeprefix("branch_")
    ours = set(catalog.require(NAME).scan().use_ref(branch).to_arrow_batch_reader().schema.names)
    files = {f.file.file_path for f in catalog.require(NAME).scan().use_ref(branch).plan_files()}
    catalog.require(NAME).append(MORE)
    publish(attempt, committed(1))
    assert ids(catalog) == [1, 2, 3]
    assert files < {f.file.file_path for f in catalog.require(NAME).scan().plan_files()}
    assert ours == {"id"}


def test_commit_of_a_clock_that_went_back_is_refused(catalog: IcebergCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java refuses to read a table whose history is not in order."""
    advance(catalog, None, committed(1))
    now = catalog.require(NAME).metadata.last_updated_ms / 1000
    monkeypatch.setattr(time, "time", lambda: now - 300)
    with pytest.raises(Unavailable, match=r"n\.t: the table's last change is 300 s ahead .*\(NTP\)"):
        advance(catalog, committed(1), committed(2))
    monkeypatch.setattr(time, "time", lambda: now - 30)
    advance(catalog, committed(1), committed(2))


def test_merge_is_refused_on_another_base(catalog: IcebergCatalog) -> None:
    attempt = begin(catalog, None)
    write(catalog, attempt)
    catalog.require(NAME).append(MORE)
    with pytest.raises(CommitFailed, match="another writer"):
        attempt.publish_head({}, {})
    assert ids(catalog) == [3]


def test_branches_of_dead_runs_are_swept_and_others_are_left(catalog: IcebergCatalog) -> None:
    catalog.require(NAME).append(MORE)
    catalog.require(NAME).manage_snapshots().create_branch(head(catalog), "theirs").commit()
    left = [begin(catalog, None), Attempt(catalog, NAME, "q", None)]
    alive = begin(catalog, None)
    own = {attempt.path[-1].removeprefix("branch_") for attempt in (*left, alive)}
    assert set(catalog.require(NAME).metadata.refs) == {"main", "theirs", *own}
    publish(alive, committed(1))
    other = left[1].path[-1].removeprefix("branch_")
    assert set(catalog.require(NAME).metadata.refs) == {"main", "theirs", other, PipelineBranch("p").tag}


def test_attempts_that_never_publish_leave_few_branches(catalog: IcebergCatalog) -> None:
    catalog.require(NAME).append(MORE)
    long_ago = attempt_branch("p", "main", uuid.uuid4().hex, datetime.now(UTC) - timedelta(days=2))
    catalog.require(NAME).manage_snapshots().create_branch(head(catalog), long_ago).commit()
    begun = [begin(catalog, None).path[-1].removeprefix("branch_") for _ in range(2)]
    assert set(catalog.require(NAME).metadata.refs) == {"main", *begun}


def test_of_two_attempts_at_once_the_first_that_is_ready_commits(catalog: IcebergCatalog) -> None:
    """Neither of them ends the other by beginning."""
    first, second = begin(catalog, None), begin(catalog, None)
    for attempt in (first, second):
        write(catalog, attempt)
    publish(first, committed(1))
    with pytest.raises(CommitFailed, match="another run has removed"):
        publish(second, committed(1, commit_id="mine"))
    assert (ids(catalog), now(catalog)) == ([1, 2], committed(1))


def test_branch_with_a_foreign_snapshot_is_not_published(catalog: IcebergCatalog) -> None:
    attempt = begin(catalog, None)
    catalog.require(NAME).append(MORE, branch=attempt.path[-1].removeprefix("branch_"))
    with pytest.raises(CommitFailed, match="another summary"):
        publish(attempt, committed(1))


@pytest.mark.parametrize(
    "foreign",
    [
        pytest.param({"batchmerge.attempt": "another"}, id="of another attempt"),
        pytest.param(committed(7).to_properties(), id="state of another attempt"),
        pytest.param({}, id="state removed by another attempt"),
        pytest.param({**committed(1).to_properties(), "batchmerge.more": "x"}, id="more than ours"),
    ],
)
def test_merge_whose_summary_is_not_ours_is_made_again(catalog: IcebergCatalog, foreign: dict[str, str]) -> None:
    """A MERGE takes its summary from the session, in which a merge that was given up may still be at work."""
    attempt = begin(catalog, None)
    branch, summary = attempt.path[-1].removeprefix("branch_"), attempt.summary | foreign
    catalog.require(NAME).append(ROWS, snapshot_properties=summary, branch=branch)
    with pytest.raises(CommitFailed, match="summary"):
        attempt.publish_head(committed(1).to_properties(), state_properties(committed(1), "main"))
    assert (ids(catalog), now(catalog)) == ([], None)


def test_table_that_was_recreated_meanwhile(catalog: IcebergCatalog) -> None:
    attempt = begin(catalog, None)
    catalog._catalog.drop_table(NAME)
    with pytest.raises(TableReplaced, match="gone"):
        publish(attempt, committed(1))
    catalog.create(NAME, iceberg_schema(ROWS.schema))
    with pytest.raises(TableReplaced, match="recreated"):
        publish(attempt, committed(1))


def test_rollback_between_plan_and_commit_is_refused_unless_it_is_skipped(catalog: IcebergCatalog) -> None:
    first = advance(catalog, None, committed(1))
    advance(catalog, committed(1), committed(2), MORE)
    late = begin(catalog, committed(2))
    write(catalog, late)
    roll_back(catalog, first)
    with pytest.raises(CommitFailed):
        publish(late, committed(3))
    with pytest.raises(CommitFailed):
        begin(catalog, committed(2))
    skipping = begin(catalog, committed(2), skip_undone=True)
    write(catalog, skipping, MORE)
    publish(skipping, committed(3))
    assert (ids(catalog), now(catalog)) == ([1, 2, 3], committed(3))


def test_rolled_back_table_goes_on_from_where_it_stands(catalog: IcebergCatalog) -> None:
    first = advance(catalog, None, committed(1))
    advance(catalog, committed(1), committed(2), MORE)
    roll_back(catalog, first)
    advance(catalog, committed(1), committed(2), MORE)
    assert (ids(catalog), now(catalog)) == ([1, 2, 3], committed(2))
    assert PipelineBranch("p").history(catalog.require(NAME)).undone is None


def test_snapshot_without_a_state_is_no_batch_that_a_rollback_could_be_known_by(catalog: IcebergCatalog) -> None:
    catalog.require(NAME).append(MORE)
    before = head(catalog)
    newest = advance(catalog, None, committed(1))
    roll_back(catalog, before)
    Append(catalog, NAME, "p", None).publish_append({}, {})
    table = catalog.require(NAME)
    assert table.metadata.refs[PipelineBranch("p").tag].snapshot_id == newest
    assert PipelineBranch("p").history(table) == History(None, committed(1))


def test_named_branch_starts_where_main_is_and_leaves_main_alone(catalog: IcebergCatalog) -> None:
    catalog.require(NAME).append(MORE)
    attempt = begin(catalog, None, target="audit")
    write(catalog, attempt)
    attempt.publish_append(committed(1).to_properties(), state_properties(committed(1), "audit"))
    table = catalog.require(NAME)
    assert ids(catalog) == [3]
    assert sorted(table.scan().use_ref("audit").to_arrow()["id"].to_pylist()) == [1, 2, 3]
    assert PipelineBranch("p", "audit").history(table).committed == committed(1)
    assert now(catalog) is None


def test_second_pipeline_of_a_branch_is_refused(catalog: IcebergCatalog) -> None:
    late = Attempt(catalog, NAME, "q", None)
    write(catalog, late, MORE)
    advance(catalog, None, committed(1))
    theirs = committed(9, pipeline="q")
    with pytest.raises(ConfigurationError, match="pipeline p writes this table, so pipeline q cannot"):
        late.publish_append(theirs.to_properties(), state_properties(theirs, "main"))
    with pytest.raises(ConfigurationError, match="pipeline p writes"):
        Attempt(catalog, NAME, "q", None)
    assert ids(catalog) == [1, 2]
    assert Attempt(catalog, NAME, "q", None, "audit").base, "another branch is another table"


def test_pipelines_that_shared_a_table_before_go_on(catalog: IcebergCatalog) -> None:
    advance(catalog, None, committed(1))
    theirs = committed(9, pipeline="q")
    with catalog.require(NAME).transaction() as transaction:
        transaction.set_properties(state_properties(theirs, "main"))
    advance(catalog, committed(1), committed(2), MORE)
    assert (ids(catalog), now(catalog)) == ([1, 2, 3], committed(2))


def test_pipeline_that_gave_its_table_away_finds_nothing_of_it(catalog: IcebergCatalog) -> None:
    advance(catalog, None, committed(1))
    late = begin(catalog, committed(1))
    write(catalog, late, MORE)
    HandOver(catalog, NAME, "p", committed(1)).to("q")
    with pytest.raises(CommitFailed, match="another run has removed"):
        publish(late, committed(2))
    with pytest.raises(ConfigurationError, match="pipeline q writes"):
        begin(catalog, committed(1))
    assert (ids(catalog), now(catalog)) == ([1, 2], None)
    assert PipelineBranch("p").history(catalog.require(NAME)) == History(None, None), "it was not rolled back"
    theirs = committed(9, pipeline="q")
    attempt = Attempt(catalog, NAME, "q", None)
    write(catalog, attempt, MORE)
    attempt.publish_append(theirs.to_properties(), state_properties(theirs, "main"))
    HandOver(catalog, NAME, "q", theirs).to("p")
    advance(catalog, None, committed(10))
    assert now(catalog) == committed(10)


def test_table_whose_files_are_no_parquet_can_be_given_away(catalog: IcebergCatalog) -> None:
    advance(catalog, None, committed(1))
    with catalog.require(NAME).transaction() as change:
        change.set_properties({"write.format.default": "orc"})
    HandOver(catalog, NAME, "p", committed(1)).to("q")
    assert now(catalog) is None


def test_retention_settings_of_main_stay(catalog: IcebergCatalog) -> None:
    catalog.require(NAME).append(MORE)
    catalog.require(NAME).manage_snapshots().create_branch(
        head(catalog), "audit", min_snapshots_to_keep=7, max_snapshot_age_ms=99
    ).commit()
    attempt = begin(catalog, None, target="audit")
    attempt.publish_append(committed(1).to_properties(), {})
    ref = catalog.require(NAME).metadata.refs["audit"]
    assert (ref.min_snapshots_to_keep, ref.max_snapshot_age_ms) == (7, 99)


@pytest.mark.parametrize("happened", [True, False])
def test_lost_answer_of_a_commit(happened: bool, catalog: IcebergCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """What happened is found in the table; what did not is reported as unknown, and nothing of it is visible."""
    commit, answers = IcebergCatalog.commit, [True]

    def lost(self: IcebergCatalog, *arguments: Any) -> None:
        if happened or answers[0]:
            commit(self, *arguments)
        if not answers[0]:
            raise CommitStateUnknown("the answer was lost")

    monkeypatch.setattr(IcebergCatalog, "commit", lost)
    attempt = begin(catalog, None)
    write(catalog, attempt)
    answers[0] = False
    if happened:
        publish(attempt, committed(1))
        assert (ids(catalog), now(catalog)) == ([1, 2], committed(1))
    else:
        with pytest.raises(CommitStateUnknown):
            publish(attempt, committed(1))
        monkeypatch.undo()
        assert (ids(catalog), now(catalog)) == ([], None)
        advance(catalog, None, committed(1))
        assert ids(catalog) == [1, 2]


def test_rows_that_were_computed_from_the_base_are_published_on_it_only(catalog: IcebergCatalog) -> None:
    """A replay appends what the table lacks: after another writer's snapshot nobody knows what that is."""
    advance(catalog, None, committed(1))
    replay = begin(catalog, committed(1))
    write(catalog, replay, MORE)
    catalog.require(NAME).append(MORE)
    with pytest.raises(CommitFailed, match="another writer"):
        replay.publish_append(committed(1).to_properties(), {}, rebase=False)
    assert ids(catalog) == [1, 2, 3]


def test_branch_that_was_swept_and_made_again_from_a_newer_head_is_refused(catalog: IcebergCatalog) -> None:
    """Iceberg creates a missing branch at commit, from main's head: the rows are ours, the base is not."""
    advance(catalog, None, committed(1))
    first, second = begin(catalog, committed(1)), begin(catalog, committed(1))
    write(catalog, second, MORE)
    second.publish_append(committed(1).to_properties(), {}, rebase=False)
    branch = first.path[-1].removeprefix("branch_")
    catalog.require(NAME).manage_snapshots().create_branch(head(catalog), branch).commit()
    write(catalog, first, MORE)
    with pytest.raises(CommitFailed, match="removed"):
        first.publish_append(committed(1).to_properties(), {}, rebase=False)
    with pytest.raises(CommitFailed, match="removed"):
        publish(first, committed(2))
    with pytest.raises(CommitFailed, match="removed"):
        first.publish_head({}, {})
    assert ids(catalog) == [1, 2, 3]


def test_second_snapshot_on_the_branch_is_refused(catalog: IcebergCatalog) -> None:
    attempt = begin(catalog, None)
    write(catalog, attempt)
    write(catalog, attempt, MORE)
    with pytest.raises(InvariantBroken, match="more than one"):
        publish(attempt, committed(1))
    assert ids(catalog) == []


@pytest.mark.parametrize("kind", [Append, Attempt])
def test_a_table_without_snapshots_may_begin_on_a_branch(catalog: IcebergCatalog, kind: type[Append | Attempt]) -> None:
    """Iceberg takes the first one on main only; readers of main see no rows."""
    first = committed(1)
    attempt = kind(catalog, NAME, "p", None, "audit")
    if isinstance(attempt, Attempt):
        write(catalog, attempt)
    attempt.publish_append(first.to_properties(), state_properties(first, "audit"))
    assert ids(catalog) == []
    assert now(catalog) is None
    table = catalog.require(NAME)
    assert PipelineBranch("p", "audit").history(table).committed == first
    # As Spark's `fast_forward` requires it.
    audited = table.snapshot_by_name("audit")
    assert audited is not None
    assert audited.parent_snapshot_id == head(catalog)
    with pytest.raises(CommitFailed):
        kind(catalog, NAME, "p", None, "audit")
