"""One pipeline file for 200 topics with 200 tables: how long definitions load, and `plan` takes.

Bounds to hold: load in under 3 s, plan in under 5 s, on an idle machine. Starts the local services that it needs.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from jobs.members import Members
from jobs.run_plan import plan_members
from jobs.spec.pipeline import PipelineSpec
from orchestration.definitions import with_shared
from orchestration.loading import load_folder
from resources.connections import KafkaConnection, data_folder, load_connections
from resources.local import stack
from tests.kit.many_topics import MANY, document, topics, write_pipeline

T = TypeVar("T")
_LOAD, _PLAN = 3, 5


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["BATCHMERGE_HOME"] = str(Path(folder) / "home")
        stack.up(data_folder(), ["kafka", "spark"], print)
        try:
            return _measure(Path(folder) / "project" / "orchestration" / "defs")
        finally:
            stack.down(data_folder(), print)


def _measure(files: Path) -> int:
    connections = load_connections()
    servers = connections.get("kafka", KafkaConnection).bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in topics(MANY)]).values():
        future.result()
    spec = PipelineSpec.model_validate(document(kinds=("iceberg",)))
    planning, plan = _timed(lambda: plan_members(Members("many", spec, connections)))
    again, _ = _timed(lambda: plan_members(Members("many", spec, connections)))
    write_pipeline(files, "many", ("iceberg",))
    loading, _ = _timed(lambda: with_shared(load_folder(files)).resolve_asset_graph())
    print(f"plan of {len(plan.plans)} topics: {planning:.1f} s, again {again:.1f} s (bound {_PLAN} s)")
    print(f"load of their definitions: {loading:.1f} s (bound {_LOAD} s)")
    return 0 if again < _PLAN and loading < _LOAD else 1


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    began = time.monotonic()
    done = work()
    return time.monotonic() - began, done


if __name__ == "__main__":
    sys.exit(main())
