"""What a kind lacks is refused with a clear sentence before anything is written."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pydantic import ValidationError

from jobs.destinations.registry import kinds
from resources.errors import ConfigurationError
from tests.destinations.conftest import MakeStory, every_kind
from tests.kit.kind import DELETE_MODE, TEXT_ORDER, UNCHANGED_COLUMNS, KindUnderTest
from tests.kit.kinds import KINDS
from tests.kit.left_out import COLUMNS as LEFT_OUT_COLUMNS
from tests.kit.story import Story, TableUnderTest, Target

GAPS = [(kind, gap) for kind in KINDS.values() for gap in kind.lacks]


def delete_mode(story: Story, kind: KindUnderTest) -> TableUnderTest:
    return story.table(Target(kind, "delete"))


def unchanged_columns(story: Story, kind: KindUnderTest) -> TableUnderTest:
    value = {"format": "json", "envelope": {"kind": "debezium", "unavailable": "keep"}, "columns": LEFT_OUT_COLUMNS}
    source = {**story.engine.document["source"], "value": value}  # type: ignore[dict-item]
    return story.edited(source=source, changes={"key": {"columns": ["id"]}}).table(Target(kind, "upsert"))


def text_order(story: Story, kind: KindUnderTest) -> TableUnderTest:
    changes = {"key": {"columns": ["id"]}, "op": {"field": "op"}, "order_by": "name"}
    return story.edited(changes=changes).table(Target(kind, "upsert"))


ASKED: dict[str, Callable[[Story, KindUnderTest], TableUnderTest]] = {
    DELETE_MODE: delete_mode,
    UNCHANGED_COLUMNS: unchanged_columns,
    TEXT_ORDER: text_order,
}


@pytest.mark.parametrize(("kind", "gap"), GAPS, ids=[f"{kind.name}: {gap}" for kind, gap in GAPS])
def test_what_a_kind_lacks_is_refused(kind: KindUnderTest, gap: str, new_story: MakeStory) -> None:
    table = ASKED[gap](new_story(), kind)
    with pytest.raises((ValidationError, ConfigurationError)) as caught:
        table.destination.prepare(dry_run=True)
    assert kind.lacks[gap] in " ".join(str(caught.value).split())


@every_kind
def test_gaps_are_those_that_the_kind_declares(kind: KindUnderTest) -> None:
    """Nothing is left out of the suite that a kind says it can do."""
    can = kind.capabilities
    assert (DELETE_MODE in kind.lacks) == ("delete" not in can.modes)
    assert {"append", "upsert", "upsert_delete"} <= can.modes
    assert (UNCHANGED_COLUMNS in kind.lacks) == (not can.keeps_unchanged_columns)


def test_every_kind_that_is_installed_is_tested() -> None:
    assert set(KINDS) == set(kinds())
