"""What is reported of a sample of the newest records that cannot be read."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from jobs.destinations.takes import takes_nothing
from jobs.landing import sample
from jobs.landing.registry_schemas import Registries
from resources.errors import ConfigurationError
from tests.kit import specs


@pytest.mark.parametrize(
    ("keys", "message"), [([b"\\"], "the newest keys cannot be read: no JSON"), ([b"{}"], "have no fields")]
)
def test_keys_that_bring_no_columns_say_why(monkeypatch: pytest.MonkeyPatch, keys: list[bytes], message: str) -> None:
    monkeypatch.setattr(sample, "newest_records", lambda *_: pa.table({"key": pa.array(keys, pa.binary())}))
    spec = specs.spec(
        specs.table("bigquery", "upsert"), source={"key": {"format": "json"}, "value": {"format": "json"}}
    )
    kafka: Any = None
    with pytest.raises(ConfigurationError, match=message):
        sample.sampled_key(spec, kafka, ["t"], Registries(), takes_nothing)
