"""The job that compares a pipeline's tables with its landed changes and with each other: checks, run when you like."""

from collections.abc import Iterator, Sequence

import dagster as dg
from pydantic import Field

from jobs.destinations.registry import kind_of
from jobs.members.members import Members
from jobs.pipeline import Pipeline
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.tables import Table
from jobs.time_limit import with_timeout
from jobs.verify.agreement import row_count_mismatches
from jobs.verify.reconciliation import Verdict, reconcile
from orchestration import names
from orchestration.components import checks
from orchestration.components.config import TopicsConfig
from orchestration.components.failures import as_failures
from orchestration.components.launch import Launch
from orchestration.components.progress import engine_log_in_run
from resources.errors import BatchmergeError

# Names of the checks. `checks.KEYS`: the same check as a merge has, of tables whose merges do not count keys.
RECONCILED = "reconciled"
AGREE = "tables_agree"


class VerifyConfig(TopicsConfig):
    """Options of the verification."""

    rows: int = Field(
        default=10_000,
        ge=0,
        description="Rows to compare per table, picked at random; 0: all (they are held in memory). Rows are counted "
        "in any case.",
    )


def verify_checks(launch: Launch) -> dg.AssetChecksDefinition:
    """One op with a check per table, and one for all tables together on the landing.

    Dagster's page adds all checks of an asset to each launch of it. Reading whole tables is no part of a merge, so this
    op then gives no results: they come from a launch of the job or of the checks alone.
    """

    @dg.multi_asset_check(name=f"{launch.name}__verify", specs=_specs(launch), can_subset=True)
    def verify(context: dg.AssetCheckExecutionContext, config: VerifyConfig) -> Iterator[dg.AssetCheckResult]:
        if context.run.asset_selection:
            context.log.info("not compared here: run the job %s_verify", launch.name)
            return
        wanted = {(key.asset_key, key.name) for key in context.selected_asset_check_keys}
        yield from (r for r in compare(context, config) if (r.asset_key, r.check_name) in wanted)

    def compare(context: dg.AssetCheckExecutionContext, config: VerifyConfig) -> Iterator[dg.AssetCheckResult]:
        with as_failures(), engine_log_in_run(context.log):
            if launch.spec.many_tables:
                yield from _compare_members(launch, launch.members(context.run.run_id, config.topics), config.rows)
                return
            pipeline = launch.open(context.run.run_id)
            verdicts = list[tuple[Table, Verdict]]()
            for table in launch.spec.tables:
                verdict = _verdict(pipeline, table, config.rows)
                if isinstance(verdict, Verdict):
                    verdicts.append((table, verdict))
                yield from _results(table, verdict)
            yield _agreement(launch.name, launch.spec, verdicts)

    return verify


def verify_job(launch: Launch) -> "dg.UnresolvedAssetJobDefinition":
    """Named ``<pipeline>_verify``."""
    return dg.define_asset_job(
        f"{launch.name}_verify",
        selection=dg.AssetSelection.checks(*check_keys(launch)),
        description=f"Compares the tables of {launch.name} with its landed changes, and with each other. Reads only.",
        executor_def=dg.in_process_executor,
    )


def check_keys(launch: Launch) -> list[dg.AssetCheckKey]:
    return [spec.key for spec in _specs(launch)]


def _specs(launch: Launch) -> list[dg.AssetCheckSpec]:
    found = []
    for table in launch.spec.tables:
        key = names.table_key(table)
        description = "the table has the rows that the landed changes make, with these values"
        found.append(dg.AssetCheckSpec(RECONCILED, asset=key, description=description))
        if _counts_keys(table):
            found.append(dg.AssetCheckSpec(checks.KEYS, asset=key, description="no key has more than one row"))
    description = "tables that hold the same at the same batch have the same number of rows"
    return [*found, dg.AssetCheckSpec(AGREE, asset=names.landing_key(launch.name), description=description)]


def _counts_keys(table: Table) -> bool:
    """Whether to count rows per key here: for the other tables every merge counts them."""
    return not kind_of(table).capabilities.counts_keys_at_merge and table.mode.startswith("upsert")


_Compared = list[tuple[Table, Verdict | BatchmergeError]]


def _compare_members(launch: Launch, members: Members, rows: int) -> Iterator[dg.AssetCheckResult]:
    """Compares the tables of each topic, or name; combines the results into the checks of their entries."""
    found: dict[dg.AssetKey, dict[str, list[dg.AssetCheckResult]]] = {}

    def work(pipeline: Pipeline) -> _Compared | None:
        if not pipeline.intermediate.landed().batches:
            return None
        own = [pipeline.table(number) for number in range(len(pipeline.spec.tables))]
        return [(table, _verdict(pipeline, table, rows)) for table in own]

    for outcome in members.each("verify", members.known(), work):
        if outcome.problem:
            raise outcome.problem
        assert outcome.member is not None
        assert outcome.done is not None
        for number, (table, verdict) in enumerate(outcome.done):
            entry = names.table_key(launch.spec.tables[number])
            found.setdefault(entry, {})[f"{outcome.topic} {table.table}"] = list(_results(table, verdict))
        agree = _agreement(
            launch.name, outcome.member.spec, [(t, v) for t, v in outcome.done if isinstance(v, Verdict)]
        )
        found.setdefault(names.landing_key(launch.name), {})[outcome.topic] = [agree]
    for spec in _specs(launch):
        yield from checks.combined_results(spec.asset_key, [spec], found.get(spec.asset_key, {}))


def _verdict(pipeline: Pipeline, table: Table, rows: int) -> Verdict | BatchmergeError:
    """The verdict on one table, or its error, which does not stop the others."""
    try:
        destination = pipeline.destination_of(table)
        stop = f"verify {destination.name}"
        return with_timeout(
            table.time_limit_seconds,
            destination.name,
            lambda: reconcile(pipeline, destination, rows),
            lambda: pipeline.interrupt(stop),
        )
    except BatchmergeError as problem:
        return problem


def _results(table: Table, verdict: Verdict | BatchmergeError) -> Iterator[dg.AssetCheckResult]:
    key = names.table_key(table)
    if isinstance(verdict, BatchmergeError):
        for name in (RECONCILED, *([checks.KEYS] if _counts_keys(table) else [])):
            yield dg.AssetCheckResult(check_name=name, asset_key=key, passed=False, description=str(verdict))
        return
    left_out = {"left out": dg.MetadataValue.text(", ".join(verdict.left_out))} if verdict.left_out else {}
    beside = {"rows of records that are not landed": verdict.beside} if verdict.beside else {}
    refused = {"refused rows": verdict.refused} if verdict.refused else {}
    yield dg.AssetCheckResult(
        check_name=RECONCILED,
        asset_key=key,
        passed=not verdict.wrong,
        description="; ".join(verdict.wrong[:5]) or None,
        metadata={
            "batch": verdict.batch,
            "rows": verdict.rows,
            "rows compared": verdict.compared,
            **beside,
            **refused,
            **left_out,
        },
    )
    if _counts_keys(table):
        duplicates = verdict.duplicates or 0
        description = f"{duplicates} keys have more than one row" if duplicates else None
        known = {"duplicate keys": duplicates, "batch": verdict.batch}
        yield dg.AssetCheckResult(
            check_name=checks.KEYS, asset_key=key, passed=not duplicates, description=description, metadata=known
        )


def _agreement(name: str, spec: PipelineSpec, verdicts: Sequence[tuple[Table, Verdict]]) -> dg.AssetCheckResult:
    wrong = row_count_mismatches(name, spec, verdicts)
    return dg.AssetCheckResult(
        check_name=AGREE,
        asset_key=names.landing_key(name),
        passed=not wrong,
        description="; ".join(wrong) or None,
        metadata={f"{t.kind} {t.table}": f"{v.rows} rows at batch {v.batch}{_refuses(v)}" for t, v in verdicts},
    )


def _refuses(verdict: Verdict) -> str:
    return f", {verdict.refused} refused" if verdict.refused else ""
