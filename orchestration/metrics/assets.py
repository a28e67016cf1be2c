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
        own: assets of one table, or of one landing, with its labels.
        steps: assets that stand for many tables (`for_each`, `new_tables`): the labels of each, by topic or name.
        pipelines: all pipelines, also those without a topic yet.
    """

    own: Mapping[dg.AssetKey, Labels] = field(default_factory=dict)
    steps: Mapping[dg.AssetKey, Mapping[str, Labels]] = field(default_factory=dict)
    pipelines: frozenset[str] = frozenset()

    def by_pipeline(self) -> dict[str, set[dg.AssetKey]]:
        found = {pipeline: {landing_key(pipeline)} for pipeline in self.pipelines}
        for key, (pipeline, _) in self.own.items():
            found.setdefault(pipeline, set()).add(key)
        for key, labels in self.steps.items():
            for pipeline, _ in labels.values():
                found.setdefault(pipeline, set()).add(key)
        return found

    @property
    def labels(self) -> Iterator[Labels]:
        """Those of every table and landing; some come twice."""
        yield from self.own.values()
        for of_step in self.steps.values():
            yield from of_step.values()

    @property
    def keys(self) -> list[dg.AssetKey]:
        return [*self.own, *(key for key in self.steps if key not in self.own)]


def pipeline_assets() -> Assets:
    """The assets of all pipeline files; a file that is wrong has none here."""
    own, steps = dict[dg.AssetKey, Labels](), dict[dg.AssetKey, dict[str, Labels]]()
    specs = readable_specs(pipeline_names())
    for name, spec in specs.items():
        for asset, key, labels in _labels_of(name, spec):
            if key:
                steps.setdefault(asset, {})[key] = labels
            else:
                own[asset] = labels
    return Assets(own, steps, frozenset(specs))


def _labels_of(name: str, spec: PipelineSpec) -> Iterator[tuple[dg.AssetKey, str, Labels]]:
    """Each asset, the member's key if the asset stands for many tables (else empty), and the labels of the table."""
    if not spec.source.for_each:
        yield landing_key(name), "", (name, landing_label())
    for one in known_tables(name, spec):
        labels = (name, one.table.title)
        yield table_key(one.table), "", labels
        if one.key:
            yield table_key(one.entry), one.key, labels
        if spec.source.for_each:
            yield landing_key(name), one.key, (name, landing_label(one.key))
