"""The driver process of what people do by hand, which can be killed at any boundary: a replay from Kafka, then a reset.

Reads ``{"name", "spec"}`` as JSON from standard input.
"""

from __future__ import annotations

import json
import sys

from jobs import offset_reset
from jobs.connections_file import load_connections
from jobs.pipeline import Pipeline
from jobs.replay.from_kafka import from_offsets, reread_from_kafka
from jobs.spec.pipeline import PipelineSpec


def main() -> None:
    wanted = json.load(sys.stdin)
    pipeline = Pipeline(wanted["name"], PipelineSpec.model_validate(wanted["spec"]), load_connections())
    reread_from_kafka(pipeline, from_offsets(pipeline.topic_state().first))
    known = offset_reset.read_state(pipeline)
    base = known.base()
    offset_reset.commit(pipeline, known, base, offset_reset.plan_reset(known, base, {}, (), base.spec_hash))


if __name__ == "__main__":
    main()
