"""Names of tables that a system allows, as topics have them."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from tests.destinations.conftest import MakeStory, most_kinds
from tests.kit import model
from tests.kit.kind import KindUnderTest
from tests.kit.records import put
from tests.kit.story import Story, Target

CHANGES = [put(1, "a"), put(2, "a"), put(1, "b")]


@pytest.fixture(scope="module")
def story(new_story: MakeStory) -> Story:
    story = new_story()
    story.produce(*CHANGES)
    story.land()
    return story


@most_kinds
@pytest.mark.parametrize("mode", [pytest.param("append", marks=pytest.mark.slow), "upsert_delete"])
def test_tables_may_be_named_after_topics(kind: KindUnderTest, mode: str, story: Story) -> None:
    for name in kind.names:
        table = replace(story.table(Target(kind, mode)), name=f"tests.{name}_{uuid.uuid4().hex[:8]}")
        table.merge()
        assert table.rows() == model.expected(story.records, mode)
        table.engine.pipeline.destinations()[0].prepare()
        assert table.replay(1, 1)
        assert table.rows() == model.expected(story.records, mode)
