"""What identifies a row: times whatever the client's time zone, null parts, and the meaning that a file gives keys."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from resources.errors import ConfigurationError
from tests.destinations.conftest import MakeStory
from tests.kit.records import COLUMNS, Record, put
from tests.kit.story import Story, Target, on_targets


def key_of(*columns: str, **parts: str) -> dict[str, object]:
    """`changes` with this key, taken from the value."""
    return {"key": {"columns": [*columns], "source": "value", **parts}, "op": {"field": "op"}, "order_by": "arrival"}


@pytest.fixture(scope="module", autouse=True)
def _in_berlin() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture(scope="module")
def times(new_story: MakeStory) -> Story:
    """2:30 is twice in Berlin on that day, and a wall clock has no zone."""
    twice = ["2025-10-26T00:30:00Z", "2025-10-26T01:30:00Z"]
    columns = {**COLUMNS, "wall": "timestamp_ntz", "at": "timestamp"}
    story = new_story(columns=columns, changes=key_of("wall", "at"))

    def record(n: int, name: str) -> Record:
        return put(n, name, wall=f"2025-10-26T0{n}:30:00", at=twice[n])

    return story.land_each(([record(0, "old"), record(1, "old")], [record(1, "new")], [record(0, "new")]))


@on_targets("upsert", "upsert_delete", always="upsert_delete")
def test_keys_of_time_do_not_depend_on_the_clients_time_zone(target: Target, times: Story) -> None:
    table = times.table(target)
    table.merge_some(1)
    table.merge_some(1)
    table.merge()
    assert table.rows() == [(0, "new", 1.0), (1, "new", 1.0)]


@pytest.fixture(scope="module")
def with_nulls(new_story: MakeStory) -> Story:
    """Keys of which a part may be null: one of them is changed, one deleted."""
    story = new_story(changes=key_of("id", "name", nulls="match"))

    def record(key: int, name: str | None, amount: float, op: str) -> Record:
        return Record(0, None, {"id": key, "name": name, "amount": amount, "op": op})

    return story.land_each(
        (
            [record(1, None, 1.0, "c"), record(1, "a", 1.0, "c"), record(2, None, 1.0, "c")],
            [record(1, None, 2.0, "u"), record(2, None, 0.0, "d")],
        )
    )


@on_targets("upsert", "upsert_delete", "delete", always="upsert_delete")
def test_null_parts_of_a_key_match_where_the_pipeline_says_so(target: Target, with_nulls: Story) -> None:
    table = with_nulls.table(target)
    table.merge_some(1)
    table.merge()
    expected = {
        "upsert": [(1, None, 2.0), (1, "a", 1.0), (2, None, 1.0)],
        "upsert_delete": [(1, None, 2.0), (1, "a", 1.0)],
        "delete": [(1, None, 1.0), (1, None, 2.0), (1, "a", 1.0)],
    }[target.mode]

    def held() -> list[tuple[object, ...]]:
        found = [(row["id"], row["name"], row["amount"]) for row in table.select("id", "name", "amount")]
        return sorted(found, key=lambda row: (row[0], str(row[1] or ""), row[2]))

    assert held() == expected
    assert table.replay(1, 1)
    assert held() == expected


@on_targets("upsert", "upsert_delete", "delete", always="upsert", shared=True)
def test_changed_meaning_is_refused_before_anything_is_written(target: Target, with_nulls: Story) -> None:
    table = with_nulls.table(target)
    table.merge_some(1)
    before, state = table.select("id", "amount"), table.destination.committed()
    other = with_nulls.edited(changes={**key_of("id", "name", nulls="match"), "op": {"field": "op", "delete": ["x"]}})
    with pytest.raises(ConfigurationError, match="is not what the committed batches were made with") as caught:
        table.under(other).merge()
    assert "--accept-changes" in caught.value.remedy
    assert len(table.select("id", "amount")) == len(before)
    assert table.destination.committed() == state
    with pytest.raises(ConfigurationError, match="is not what the committed batches were made with"):
        other.land()
