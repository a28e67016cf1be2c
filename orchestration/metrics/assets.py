"""Which assets stand for which tables, and the labels of these in the metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import dagster as dg

from jobs.spec.pipeline import PipelineSpec
from orchestration.files import pipeline_names, readable_specs
from orchestration.known_tables import known_tables
from orchestration.metrics.tables import landing_label
from orchestration.names import landing_key, table_key

# Pipeline and table.
Labels = tuple[str, str]


@dataclass(frozen=True)
class Assets:
    """The assets of pipelines.

    Attributes:
        own: those of one table, or of a landing.
        steps: those of steps that do many (`for_each`, `new_tables`): by topic, or name, what each is for.
        pipelines: whose they are, also those without a topic yet.
    """

    own: Mapping[dg.AssetKey, Labels] = field(default_factory=dict)
    steps: Mapping[dg.AssetKey, Mapping[str, Labels]] = field(default_factory=dict)
    pipelines: frozenset[str] = frozenset()

    @property
    def keys(self) -> list[dg.AssetKey]:
        return [*self.own, *(key for key in self.steps if key not in self.own)]


def pipeline_assets() -> Assets:
    """Those of the pipeline files. Files that are wrong have no tables here."""
    own, steps = dict[dg.AssetKey, Labels](), dict[dg.AssetKey, dict[str, Labels]]()
    specs = readable_specs(pipeline_names())
    for name, spec in specs.items():
        for key, whose, labels in _labels_of(name, spec):
            if whose:
                steps.setdefault(key, {})[whose] = labels
            else:
                own[key] = labels
    return Assets(own, steps, frozenset(specs))


def _labels_of(name: str, spec: PipelineSpec) -> Iterator[tuple[dg.AssetKey, str, Labels]]:
    """Each asset with the labels of its table; with whose table that is, where it stands for many."""
    if not spec.source.for_each:
        yield landing_key(name), "", (name, landing_label())
    for one in known_tables(name, spec):
        labels = (name, one.label)
        yield table_key(one.table), "", labels
        if one.whose:
            yield table_key(one.entry), one.whose, labels
        if spec.source.for_each:
            yield landing_key(name), one.whose, (name, landing_label(one.whose))
