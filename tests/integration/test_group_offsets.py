"""Offsets of consumer groups, asked for while a new broker is still finding out who coordinates them.

librdkafka's admin client has ended the process there (its issue 5040): so a process of its own asks.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from resources.local import stack as local_stack

_ASK = """
from resources.connections import KafkaConnection, load_connections
from resources.kafka import KafkaCluster
cluster = KafkaCluster("kafka", load_connections().get("kafka", KafkaConnection))
print([cluster.group_offsets(f"group-{n}") for n in range(100)].count({}))
"""


def test_the_first_question_to_a_new_broker_crashes_nobody(tmp_path: Path) -> None:
    local_stack.up(tmp_path, ["kafka"], print)
    try:
        environment = {**os.environ, "BATCHMERGE_HOME": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2])}
        environment.pop("BATCHMERGE_CONNECTIONS", None)
        asked = subprocess.run(
            [sys.executable, "-c", _ASK], env=environment, capture_output=True, text=True, check=False
        )
        assert (asked.returncode, asked.stdout) == (0, "100\n"), asked.stderr
    finally:
        local_stack.down(tmp_path, print)
