"""The component type of a pipeline file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import dagster as dg
from pydantic import BaseModel, RootModel

from jobs.spec.pipeline import PipelineSpec
from jobs.spec.pipeline_file import read_pipeline_file
from orchestration.components.assets import landing_asset, table_asset, topic_specs
from orchestration.components.automation import pipeline_job, pipeline_schedule
from orchestration.components.jobs_by_hand import pause_jobs, plan_job
from orchestration.components.launch import Launch
from orchestration.components.maintenance import maintenance_job, maintenance_schedule
from orchestration.components.member_assets import member_assets
from orchestration.components.scaffolding import PipelineScaffolder
from orchestration.components.verify import check_keys, verify_checks, verify_job
from orchestration.continuous.job import continuous_job
from orchestration.continuous.sensor import continuous_sensor
from orchestration.files import file_in
from orchestration.loading import WrongPipelineFiles
from orchestration.sensors.control import control_sensor
from orchestration.sensors.lag import lag_sensor
from orchestration.sensors.lease_state import lease_sensors
from resources.errors import ConfigurationError


class AsWritten(RootModel[Any]):
    """The attributes of a pipeline file before validation, with the schema for `dg check yaml` and editors."""

    @classmethod
    def model_json_schema(cls, *args: Any, **options: Any) -> dict[str, Any]:
        return PipelineSpec.model_json_schema(*args, **options)


@dg.scaffold_with(PipelineScaffolder)
@dataclass
class KafkaPipeline(dg.Component):
    """Kafka topics, landed in batches and merged into destination tables, exactly once.

    The folder's name is the pipeline's name. The attributes are `jobs.spec.pipeline.PipelineSpec`, which knows nothing
    of Dagster: the same file runs without it.
    """

    name: str
    spec: PipelineSpec
    file: str = ""

    @classmethod
    def get_model_cls(cls) -> type[BaseModel]:
        # Not derived from this class: Dagster's own way loosens types and refuses bounds on numbers.
        return AsWritten

    @classmethod
    def load(cls, attributes: Any, context: dg.ComponentLoadContext) -> KafkaPipeline:
        """The pipeline of a `defs.yaml`, which is read once more here: Dagster passes no line numbers.

        Raises:
            WrongPipelineFiles: all that is wrong in it.
        """
        del attributes
        try:
            file = read_pipeline_file(file_in(context.path) or context.path)
        except ConfigurationError as problem:
            raise WrongPipelineFiles([problem]) from None
        return cls(file.name, file.spec, file.yaml.shown)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        del context
        try:
            return self.definitions()
        except ConfigurationError as problem:
            raise WrongPipelineFiles([problem]) from None

    def definitions(self) -> dg.Definitions:
        """Assets, jobs, schedule and sensors of the pipeline.

        Raises:
            ConfigurationError: Dagster refuses something that no rule of the file is about.
        """
        try:
            return self._definitions()
        except (dg.DagsterInvalidDefinitionError, ValueError, OverflowError) as problem:
            raise ConfigurationError(
                f"Dagster refuses the definitions: {problem}",
                where=self.file or f"pipeline {self.name}",
                remedy="correct the part that Dagster names",
            ) from problem

    def _definitions(self) -> dg.Definitions:
        launch = Launch(self.name, self.spec)
        hours = dg.HourlyPartitionsDefinition(start_date=self.spec.since, end_offset=1)
        landing = landing_asset(launch, hours)
        tables = [table_asset(launch, table, hours) for table in self.spec.tables]
        job, maintenance = pipeline_job(launch, [landing, *tables], check_keys(launch)), maintenance_job(launch)
        continuous = continuous_job(launch) if self.spec.interval else None
        return dg.Definitions(
            assets=[*topic_specs(self.name, self.spec), landing, *tables, *member_assets(launch, hours)],
            asset_checks=[verify_checks(launch)],
            jobs=[
                job,
                *([continuous] if continuous else []),
                plan_job(launch),
                verify_job(launch),
                maintenance,
                *pause_jobs(launch),
            ],
            schedules=[
                *([] if continuous else [pipeline_schedule(launch, job, hours)]),
                maintenance_schedule(launch, maintenance),
            ],
            sensors=[
                *([continuous_sensor(self.name, self.spec, continuous)] if continuous else []),
                *([lag_sensor(self.name, self.spec, job, hours)] if self.spec.trigger else []),
                *([control_sensor(self.name, self.spec)] if self.spec.control.enabled else []),
                # With many tables per entry there is no such sensor: the next run recovers what a dead one has left.
                *([] if self.spec.many_tables else lease_sensors(self.name, self.spec, job, hours)),
            ],
        )
