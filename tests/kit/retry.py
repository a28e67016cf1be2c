"""The driver process of a dead-letter retry, which can be killed at any boundary. Reads ``{"name", "spec"}``."""

from __future__ import annotations

import json
import sys

from jobs.dead_letters.retry import retry
from jobs.pipeline import Pipeline
from jobs.spec.pipeline import PipelineSpec
from resources.connections import load_connections

if __name__ == "__main__":
    wanted = json.load(sys.stdin)
    retry(Pipeline(wanted["name"], PipelineSpec.model_validate(wanted["spec"]), load_connections()))
