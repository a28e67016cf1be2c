"""What a sample of the newest records tells where it cannot be read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jobs.destinations.takes import takes_nothing
from jobs.landing import sample
from jobs.landing.registry_schemas import Registries
from resources.errors import ConfigurationError
from tests.kit import specs


@pytest.mark.parametrize(
    ("keys", "said"), [([b"\\"], "the newest keys cannot be read: no JSON"), ([b"{}"], "have no fields")]
)
def test_keys_that_bring_no_columns_say_why(monkeypatch: pytest.MonkeyPatch, keys: list[bytes], said: str) -> None:
    monkeypatch.setattr(sample, "newest_records", lambda *_: [SimpleNamespace(key=key) for key in keys])
    spec = specs.spec(
        specs.table("bigquery", "upsert"), source={"key": {"format": "json"}, "value": {"format": "json"}}
    )
    kafka: Any = None
    with pytest.raises(ConfigurationError, match=said):
        sample.sampled_key(spec, kafka, ["t"], Registries(), takes_nothing)
