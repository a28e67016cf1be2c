"""Compares a step with the table's state: what earlier runs have begun or finished.

Normally a step finds the AFTER of the previous step. The state machine (`transitions.py`) decides all other cases: the
step itself, begun by a run that died; offsets that a step of a lost intermediate table has begun; offsets that another
writer has moved, which only a person can resolve. An emptied state has no lease (`merge.py`); one that is older than
the table agrees with itself, so nothing here can notice it (`docs/limits.md`).

Rows that may be in the table are not inserted twice: in mode append the insert skips records that the table has, and
rows of upserts are the same versions again, or older ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jobs.batch import Batch
from jobs.destinations.clickhouse.state import PartitionRow
from jobs.destinations.clickhouse.steps import Spans, Step
from jobs.destinations.clickhouse.transitions import Case, Phase, Span, case_of
from jobs.offsets import TopicPartition

PartitionRows = Mapping[TopicPartition, PartitionRow]


@dataclass(frozen=True)
class Found:
    """What is already done of a step.

    Attributes:
        is_done: the step itself was inserted and acknowledged.
        some: some of its records may be in the table, inserted by another step.
        beyond: offsets after the step's own whose insert was begun: they remain BEFORE, for the following steps.
        refused: a topic-partition that cannot continue, and its case.
    """

    is_done: bool
    some: bool
    beyond: Spans
    refused: tuple[TopicPartition, Case] | None = None

    def begun(self, spans: Spans) -> Spans:
        """The offsets for which BEFORE is written: the step's, and those beyond it."""
        return {tp: Span(span.first, self.beyond[tp].last) if tp in self.beyond else span for tp, span in spans.items()}


def find(step: Step, rows: PartitionRows, committed: int) -> Found:
    """Compares a step with the rows of its topic-partitions.

    Args:
        committed: number of the table's committed batch, 0 for none.
    """
    own = [tp for tp in step.spans if tp in rows and rows[tp].commit_id == step.batch.commit_id]
    some, beyond = False, Spans()
    for tp, span in step.spans.items():
        row = rows.get(tp)
        # A recreated topic has new offsets, unrelated to those of the old topic.
        if row is None or row.topic_id != step.batch.topic_ids.get(tp.topic, ""):
            continue
        open_span = _open(row, step.batch, committed)
        if open_span:
            overlap = open_span.first <= span.last and span.first <= open_span.last
            some = some or (overlap and tp not in own)
            if open_span.last > span.last:
                beyond[tp] = Span(max(open_span.first, span.last + 1), open_span.last)
        elif tp not in own:
            case = case_of(row.span, span)
            if case.refused:
                return Found(False, True, {}, (tp, case))
            some = some or not case.follows
    is_done = bool(step.spans) and len(own) == len(step.spans) and all(rows[tp].phase is Phase.AFTER for tp in own)
    return Found(is_done and not beyond, some, beyond)


def kept_by_reset(reset: Batch, rows: PartitionRows, committed: int) -> Spans:
    """Offsets that may be in the table although they are not committed; other rows are irrelevant after a reset."""
    kept = {tp: _open(row, reset, committed) for tp, row in rows.items()}
    ids = reset.topic_ids
    return {tp: span for tp, span in kept.items() if span and rows[tp].topic_id == ids.get(tp.topic, "")}


def _open(row: PartitionRow, batch: Batch, committed: int) -> Span | None:
    """Offsets that were begun and never committed."""
    abandoned = row.batch > committed and row.commit_id != batch.commit_id
    return row.span if row.phase is Phase.BEFORE or abandoned else None
