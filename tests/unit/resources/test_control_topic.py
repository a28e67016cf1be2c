"""Writers of topics that do not exist: what people are to do about it."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from jobs.dead_letters.delivery import Delivery
from resources.control_topic import ControlWriter, GroupProgress
from resources.errors import TopicMissing


def cluster() -> Any:
    found = Mock()
    found.name = "kafka"
    found.client_settings.return_value = {}
    found.topics.side_effect = TopicMissing("no such topic")
    return found


def test_a_missing_topic_names_its_own_options() -> None:
    """Of dead letters the options of the control topic would lose its events, and change nothing."""
    control = ControlWriter(cluster(), "events", "id", 1.0)
    with pytest.raises(TopicMissing, match=r"control topic events does not exist.*`control.create: true`"):
        control.open(create=False)
    delivery = Delivery(cluster(), "orders_dead", False, 1.0, None, GroupProgress("g", {}, ""), lambda: None)
    with pytest.raises(TopicMissing, match=r"dead-letter topic orders_dead does not exist") as caught:
        delivery.send(delivery.writer())
    assert "`dead_letters.create_topic: true`" in caught.value.remedy
    assert "control" not in str(caught.value)
