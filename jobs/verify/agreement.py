"""Compares the row counts of a pipeline's tables with each other. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from jobs.changes.routing import route_filter
from jobs.destinations.refused_rows import list_command, retry_command
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.tables import Table
from jobs.verify.reconciliation import Verdict


def row_count_mismatches(pipeline: str, spec: PipelineSpec, verdicts: Sequence[tuple[Table, Verdict]]) -> list[str]:
    """Tables that should have the same number of rows at the same batch, and do not; with their refused rows, which may
    be the reason. Tables that may lack rows are left out."""

    def what(pair: tuple[Table, Verdict]) -> tuple[str, str, str, int]:
        table, verdict = pair
        return table.mode, table.deletes, repr(route_filter(spec, table)), verdict.batch

    wrong, lasting = [], [pair for pair in verdicts if not pair[1].may_lack]
    for (*_, batch), group in groupby(sorted(lasting, key=what), key=what):
        found = {table.title: verdict for table, verdict in group}
        if len({verdict.rows for verdict in found.values()}) > 1:
            said = ", ".join(f"{name} has {verdict.rows} rows{_refused(verdict)}" for name, verdict in found.items())
            wrong.append(f"at batch {batch}: {said}{_remedy(pipeline, list(found.values()))}")
    return wrong


def _refused(verdict: Verdict) -> str:
    return f" and refuses {verdict.refused}" if verdict.refused else ""


def _remedy(pipeline: str, verdicts: Sequence[Verdict]) -> str:
    if not any(verdict.refused for verdict in verdicts):
        return ""
    return f" (see `{list_command(pipeline)}`, correct the table's options, then `{retry_command(pipeline)}`)"
