"""Do the tables of a pipeline agree with each other? Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from jobs.changes.routing import route_filter
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.tables import Table
from jobs.verify.reconciliation import Verdict


def row_count_mismatches(spec: PipelineSpec, verdicts: Sequence[tuple[Table, Verdict]]) -> list[str]:
    """Tables that should hold the same at the same batch, and do not."""

    def what(pair: tuple[Table, Verdict]) -> tuple[str, str, int]:
        table, verdict = pair
        return table.mode, repr(route_filter(spec, table)), verdict.batch

    wrong = []
    for (_, _, batch), group in groupby(sorted(verdicts, key=what), key=what):
        rows = {f"{table.kind} {table.table}": verdict.rows for table, verdict in group}
        if len(set(rows.values())) > 1:
            wrong.append(f"at batch {batch}: " + ", ".join(f"{name} has {n} rows" for name, n in rows.items()))
    return wrong
