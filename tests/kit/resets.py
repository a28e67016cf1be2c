"""Offsets that a person moves, as by `batchmerge offsets set | reset --accept-changes --yes`."""

from __future__ import annotations

from jobs.batch import Batch
from jobs.offsets import Offsets
from jobs.pipeline import Pipeline
from jobs.resets import offset_reset


def reset_offsets(pipeline: Pipeline, targets: Offsets | None = None) -> Batch:
    """Moves these offsets (None: none), and accepts a changed meaning of `changes`; returns the batch that does it."""
    known = offset_reset.read_state(pipeline)
    base = known.base()
    batch = offset_reset.plan_reset(known, base, targets or {}, (), pipeline.spec.meaning_hash)
    offset_reset.commit(pipeline, known, base, batch)
    return batch
