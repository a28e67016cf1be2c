"""What `dg scaffold defs batchmerge.KafkaPipeline orders` writes: a valid pipeline file to begin with."""

from typing import Any

import dagster as dg

from jobs.iceberg import FORMAT


class PipelineScaffolder(dg.Scaffolder):
    """One topic into one Iceberg table, both named as the pipeline; paused."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        dg.scaffold_component(request, starter(request.target_path.name))


def starter(name: str) -> dict[str, Any]:
    """The attributes. `batchmerge infer <topic>` proposes the columns."""
    columns = {"id": "long not null", "changed_at": "timestamp"}
    return {
        "source": {
            "topics": [name],
            "key": {"format": "json", "columns": {"id": "long not null"}},
            "value": {"format": "json", "columns": columns},
        },
        "changes": {"key": {"columns": ["id"]}},
        "tables": [{"kind": FORMAT, "table": f"lake.{name}", "mode": "upsert_delete"}],
        "cron": "*/5 * * * *",
        "paused": True,
    }
