"""Which pipelines apply truncations, and why others are refused."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from jobs.spec.pipeline import PipelineSpec
from tests.kit import specs

ENVELOPE = {"kind": "debezium", "metadata": {"_lsn": "source.lsn", "_at": "ts_ms"}, "truncates": "apply"}
COLUMNS = {"id": "long", "n": "long", "_lsn": "long", "_at": "timestamp"}
TABLE = specs.table(mode="upsert_delete")


def spec(order_by: str = "_lsn", table: dict[str, Any] = TABLE, **source: Any) -> PipelineSpec:
    value, changes = {"envelope": ENVELOPE}, {"order_by": order_by}
    return specs.spec(table, columns=COLUMNS, key=specs.ID, value=value, source=source, changes=changes)


def test_an_order_out_of_the_envelope_is_enough() -> None:
    routed = {**TABLE, "mode": "upsert", "route": {"field": "n", "matches": "1"}}
    made = [spec(), spec(table=routed)]
    assert [one.source.value.envelope.truncates for one in made if one.source.value.envelope] == ["apply"] * 2


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"order_by": "arrival"}, "goes by the order of changes"),
        ({"order_by": "n"}, "goes by the order of changes"),
        ({"order_by": "_at"}, "which has to be a whole number"),
        ({"topics": ["t", "u"]}, "with several topics"),
        ({"table": {**TABLE, "route": {"field": "n", "matches": "1"}}}, "with routes"),
        ({"transform": "select * from records"}, "what the transform makes of a truncation"),
    ],
)
def test_what_is_in_the_way_is_named(parts: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message) as caught:
        spec(**parts)
    assert "refuse" in str(caught.value)
    assert "skip" in str(caught.value)
