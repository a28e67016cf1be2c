"""What maintenance may remove: decided by pure functions, here over tables of cases."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from pyiceberg.table.metadata import TableMetadata

from jobs.iceberg.branches import (
    attempt_branch,
    attempt_prefix,
    attempts_since,
    begun_at,
    begun_before,
    maintenance_branch,
)
from jobs.maintenance.retention import first_kept
from jobs.maintenance.snapshots import expirable, unreferenced
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.tables import table_named
from tests.kit import specs
from tests.kit.batches import committed, landed
from tests.kit.history import table_metadata

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
HEX = "0123456789abcdef0123456789abcdef"


def test_branch_says_whose_it_is_and_since_when() -> None:
    name = attempt_branch("p", "main", HEX, NOON)
    assert name.startswith(attempt_prefix("p", "main"))
    assert begun_at(name) == NOON
    assert begun_at(maintenance_branch("p", "main", HEX, NOON)) == NOON
    assert begun_at("audit") is None
    assert begun_at(f"attempt--p--main--{HEX}") is None


def test_only_young_attempts_are_alive_and_only_old_ones_dead() -> None:
    old, young = (attempt_branch("p", "main", HEX, NOON - timedelta(hours=h)) for h in (30, 1))
    compaction = maintenance_branch("p", "main", HEX, NOON - timedelta(hours=30))
    names = ["main", "theirs--20200101T000000", old, young, compaction]
    assert attempts_since(names, NOON - timedelta(hours=2)) == [young]
    assert begun_before(names, NOON - timedelta(hours=24)) == [old, compaction]


def history(count: int, batches: set[int], refs: dict[str, int], strays: Collection[int] = ()) -> TableMetadata:
    """Snapshots 1..count in one line, snapshot n taken at 1000 n; `batches` carry a state, `strays` hang off it."""
    snapshots: list[tuple[int, int | None, dict[str, str]]] = []
    for n in range(1, count + 1):
        parent = next((m for m in range(n - 1, 0, -1) if m not in strays), None)
        snapshots.append((n, parent, {"batchmerge.pipeline": "p"} if n in batches else {}))
    return table_metadata(snapshots, refs)


ALL = set(range(1, 9))


@pytest.mark.parametrize(
    ("what", "batches", "refs", "before", "keep_last", "oldest_kept", "expected"),
    [
        ("by age", ALL, {"main": 8}, 5500, 1, None, [1, 2, 3, 4, 5]),
        ("so many stay, however old", ALL, {"main": 8}, 99_000, 3, None, [1, 2, 3, 4, 5]),
        ("the head always stays", ALL, {"main": 8}, 99_000, 1, None, [1, 2, 3, 4, 5, 6, 7]),
        ("young ones stay", ALL, {"main": 8}, 500, 1, None, []),
        ("down to the newest batch beneath other writers", {2, 4}, {"main": 8}, 99_000, 1, None, [1, 2, 3]),
        ("down to the oldest landed batch that is known", ALL, {"main": 8}, 99_000, 1, 3, [1, 2]),
        ("one that is not in the line: nothing", ALL, {"main": 8}, 99_000, 1, 77, []),
        ("what a tag or branch points to stays", ALL, {"main": 8, "tag": 2, "audit": 3}, 99_000, 2, None, [1, 4, 5, 6]),
        ("no batch at all: nothing is known to be old", set(), {"main": 8}, 99_000, 1, None, []),
    ],
)
def test_snapshots_that_may_be_expired(
    what: str,
    batches: set[int],
    refs: dict[str, int],
    before: int,
    keep_last: int,
    oldest_kept: int | None,
    expected: list[int],
) -> None:
    assert expirable(history(8, batches, refs), "main", before, keep_last, oldest_kept) == expected, what


def test_branch_of_a_users_name_leaves_main_alone() -> None:
    metadata = history(8, ALL, {"main": 4, "staging": 8})
    assert expirable(metadata, "staging", before=99_000, keep_last=1, oldest_kept=None) == [5, 6, 7]


def test_snapshots_of_attempts_that_were_given_up() -> None:
    metadata = history(8, ALL, {"main": 8, "tag": 4}, strays={3, 4, 7})
    assert unreferenced(metadata, before=99_000) == [3, 7], "4 is tagged"
    assert unreferenced(metadata, before=5000) == [3]


@pytest.mark.parametrize(
    ("what", "states", "before", "expected"),
    [
        ("all are old and merged: the newest stays", [4], 99_000, 4),
        ("by age", [4], 2500, 3),
        ("a table that is behind needs what follows", [4, 2], 99_000, 3),
        ("a table without a batch needs all", [4, None], 99_000, 1),
        ("none is old enough", [4], 500, 1),
    ],
)
def test_landed_batches_that_have_to_stay(what: str, states: list[int | None], before: int, expected: int) -> None:
    known = [landed(n) for n in (1, 2, 3, 4)]
    oldest = first_kept(known, [committed(n) if n else None for n in states], before)
    assert oldest, what
    assert oldest.number == expected, what


@pytest.mark.parametrize(("merged", "kept"), [(4, 2), (5, 5)])
def test_batches_that_are_revised_stay_until_every_table_has_the_one_that_revises(merged: int, kept: int) -> None:
    known = [landed(n) for n in (1, 2, 3, 4, 5)]
    known[4] = replace(known[4], batch=replace(known[4].batch, revises=2))
    oldest = first_kept(known, [committed(5), committed(merged)], 99_000)
    assert oldest
    assert oldest.number == kept


@pytest.mark.parametrize(("unsent", "kept"), [([], 4), ([4, 2], 2)])
def test_batches_whose_dead_letters_are_not_sent_stay(unsent: list[int], kept: int) -> None:
    oldest = first_kept([landed(n) for n in (1, 2, 3, 4)], [committed(4)], 99_000, unsent)
    assert oldest
    assert oldest.number == kept


def test_nothing_landed_nothing_kept() -> None:
    assert first_kept([], [None], 0) is None


def maintained(**maintenance: object) -> PipelineSpec:
    return specs.spec(specs.table(time_limit_seconds=86_400), maintenance=maintenance)


def test_files_of_a_run_that_may_still_write_are_no_orphans() -> None:
    with pytest.raises(ValueError, match="wait for their commit for 86400 s"):
        maintained(orphans={"older_than_hours": 24})
    assert maintained(orphans={"older_than_hours": 25}).maintenance.orphans.older_than_hours == 25


def test_tables_to_skip_must_be_there() -> None:
    with pytest.raises(ValueError, match=r"maintenance\.skip_tables\[1\]: n\.u is not a table of the pipeline"):
        maintained(skip_tables=["n.t", "n.u"])


@pytest.mark.parametrize("name", ["iceberg n.t", "clickhouse n.t", "iceberg n.t on lake2", "iceberg/n/t"])
def test_a_table_to_skip_is_named_as_everywhere(name: str) -> None:
    others = {"connection": "lake2"}
    tables = [specs.table("iceberg"), specs.table("clickhouse"), specs.table("iceberg", **others)]
    spec = specs.spec(*tables, maintenance={"skip_tables": [name]})
    skipped = spec.maintenance.skipped(spec.tables)
    assert [table.title for table in skipped] == [name.replace("/", " ", 1).replace("/", ".")]
    assert skipped == [table_named("p", spec.tables, name)]
    with pytest.raises(ValueError, match=r"n\.t means 3 tables. Fix: name each: `iceberg n.t`, `clickhouse n.t` and"):
        specs.spec(*tables, maintenance={"skip_tables": ["n.t"]})
