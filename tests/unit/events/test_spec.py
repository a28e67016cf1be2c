"""The `control` part of a pipeline file."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from jobs.spec.control import Control


def test_left_out_it_is_on() -> None:
    control = Control()
    assert (control.enabled, control.topic, control.create) == (True, "batchmerge_control", True)


@pytest.mark.parametrize("wrong", [{"topic": ""}, {"topic": "a b"}, {"topics": "x"}, {"time_limit_seconds": 0}])
def test_what_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Control.model_validate(wrong)
