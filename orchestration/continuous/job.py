"""The job of the continuous run: a step for the landing and one for each table, side by side.

With `commit: together` the first table's step commits them all.
"""

from collections.abc import Callable

import dagster as dg

from jobs.spec.tables import Table
from orchestration import names
from orchestration.components.launch import Launch
from orchestration.continuous.landing import Landing
from orchestration.continuous.members import LandingOfMembers, MergingOfMembers
from orchestration.continuous.merging import Merging
from orchestration.continuous.step import ContinuousStep, StepConfig, Work
from orchestration.executor import PRELOAD, step_processes

Begin = Callable[[ContinuousStep], Work]


def continuous_job(launch: Launch) -> dg.JobDefinition:
    """Named ``<pipeline>_continuous``. Its steps are plain ops: each materializes its asset when it decides to."""
    name, spec = launch.name, launch.spec
    landing = names.landing_key(name)
    land: Begin = LandingOfMembers if spec.source.for_each else Landing
    merge: Begin = MergingOfMembers if spec.many_tables else Merging
    ops = [_op(launch, landing, names.pool(landing), None, land)]
    for table in names.continuous_tables(spec):
        ops.append(_op(launch, names.table_key(table), names.table_pool(name, spec, table), table, merge))

    @dg.job(
        name=names.continuous_job(name),
        description=f"Lands and merges {name} every {spec.interval}, for an hour or so: then another run takes over. "
        f"`{name}_continuous` (the sensor) starts it.",
        tags={
            names.PIPELINE_TAG: name,
            names.CONTINUOUS_TAG: name,
            names.FILE_TAG: names.file_hash(spec),
            # The sensor starts the next one, whatever became of this one.
            "dagster/max_retries": "0",
        },
        executor_def=step_processes(len(ops), PRELOAD),
    )
    def continuous() -> None:
        for op in ops:
            op()

    return continuous


def _op(launch: Launch, key: dg.AssetKey, pool: str, table: Table | None, begin: Begin) -> dg.OpDefinition:
    """A step's op. It has no Dagster pool, which it would hold as long as it runs."""

    @dg.op(name=names.continuous_op(launch.name, key), out=dg.Out(dg.Nothing))
    def step(context: dg.OpExecutionContext, config: StepConfig) -> None:
        ContinuousStep(context, launch, config, key, pool, table).run(begin)

    return step
