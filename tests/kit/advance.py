"""The driver process: runs one pipeline as the orchestration would, and can be killed at any boundary.

Reads ``{"name", "spec", "batches", "replay"}`` as JSON from standard input.

Exit codes: 0 done, 2 terminal, 3 transient error.
"""

from __future__ import annotations

import json
import logging
import sys

from jobs import protocol
from jobs.connections_file import load_connections
from jobs.pipeline import Pipeline
from jobs.replay.landed import replay_batches
from jobs.spec.pipeline import PipelineSpec
from resources.errors import BatchmergeError, TransientError


def main() -> int:
    logging.basicConfig(level=logging.WARNING, stream=sys.stdout, format="%(levelname)s %(name)s %(message)s")
    logging.getLogger("batchmerge").setLevel(logging.INFO)
    wanted = json.load(sys.stdin)
    pipeline = Pipeline(wanted["name"], PipelineSpec.model_validate(wanted["spec"]), load_connections())
    try:
        if replayed := wanted["replay"]:
            for destination in pipeline.destinations():
                print(replay_batches(pipeline, destination, *replayed))
            return 0
        for _ in protocol.land(pipeline, wanted["batches"]):
            pass
        if pipeline.spec.commit == "together":
            protocol.merge_together(pipeline)
        else:
            for destination in pipeline.destinations():
                protocol.merge(pipeline, destination)
    except BatchmergeError as problem:
        print(f"{type(problem).__name__}: {problem}", flush=True)
        return 3 if isinstance(problem, TransientError) else 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
