"""What a kind lacks is refused with a clear sentence as soon as a pipeline file asks for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import pytest

from jobs.destinations.kind import Capabilities
from jobs.destinations.registry import kinds
from tests.destinations.conftest import every_kind
from tests.kit import specs
from tests.kit.kind import KindUnderTest
from tests.kit.kinds import KINDS


@dataclass(frozen=True)
class Asked:
    """A pipeline file that asks for a capability, and the sentence that refuses it; {} is the system's name."""

    refused: str
    parts: Mapping[str, Any] = field(default_factory=dict)
    table: Mapping[str, Any] = field(default_factory=dict)


ASKED = {
    "keeps_unchanged_columns": Asked(
        "`keep` needs the row before, and {}",
        {
            "value": {"envelope": {"kind": "debezium", "unavailable": "keep"}},
            "columns": {"id": "long", "body": "string"},
        },
    ),
    "orders_by_text": Asked(
        "`changes.order_by` names name, and .* {}",
        {"columns": {"id": "long", "name": "string"}, "changes": {"order_by": "name"}},
    ),
    "commits_together": Asked("`together` needs tables of one ", {"commit": "together"}),
    "struct_keys": Asked("s is struct.*, which cannot identify a row", {"key": {"s": "struct<a: long>"}}),
    "nullable_nested": Asked("record is a struct, and {} has no null", {}, {"metadata_columns": ["record as origin"]}),
    "truncates": Asked(
        "`apply` cannot delete rows in {}",
        {
            "columns": {"id": "long", "lsn": "long"},
            "value": {"envelope": {"kind": "debezium", "metadata": {"lsn": "source.lsn"}, "truncates": "apply"}},
            "changes": {"order_by": "lsn"},
        },
        {"mode": "upsert_delete"},
    ),
    "rolls_back": Asked("on_rollback", {}, {"on_rollback": "replay"}),
}
# A pipeline file cannot ask for these; the tests of what they say go by them.
NOT_ASKED = {
    *(
        "counts_keys_at_merge",
        "finds_rows",
        "leases",
        "loads_landed_files",
        "refuses",
        "rows_on_workers",
        "state_in_table",
        "tells_topics_apart",
        "upkeep",
    ),
}


def mistakes(kind: KindUnderTest, asked: Asked) -> list[str]:
    table = specs.table(kind.name, **{"mode": "upsert", "name": "tests.t", **kind.options, **asked.table})
    return specs.mistakes(specs.document(table, **{"key": specs.ID, **asked.parts}))


@every_kind
@pytest.mark.parametrize("capability", ASKED)
def test_what_a_kind_lacks_is_refused(capability: str, kind: KindUnderTest) -> None:
    """And what it has is not."""
    asked = ASKED[capability]
    refusals = mistakes(kind, asked)
    if getattr(kind.capabilities, capability):
        assert refusals == []
    else:
        (refusal,) = refusals
        assert_matches(asked.refused, refusal, kind)


@every_kind
@pytest.mark.parametrize("mode", ["append", "upsert", "upsert_delete", "delete"])
def test_mode_that_a_kind_lacks_is_refused(mode: str, kind: KindUnderTest) -> None:
    refusals = mistakes(kind, Asked("", table={"mode": mode}))
    if mode in kind.capabilities.modes:
        assert refusals == []
    else:
        assert_matches("{} (cannot|does not have)", refusals[0], kind)


def assert_matches(pattern: str, refusal: str, kind: KindUnderTest) -> None:
    assert re.search(pattern.format(kinds()[kind.name].title), " ".join(refusal.split())), refusal


def test_nothing_that_a_kind_may_lack_is_left_out() -> None:
    known = {f.name for f in fields(Capabilities) if f.type == "bool"}
    assert known == {*ASKED, *NOT_ASKED}


def test_every_kind_that_is_installed_is_tested() -> None:
    assert set(KINDS) == set(kinds())
    assert all({"append", "upsert", "upsert_delete"} <= kind.capabilities.modes for kind in KINDS.values())
