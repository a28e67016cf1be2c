"""The job that compares a pipeline's tables with its landed changes and with each other: checks, run when you like."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial

import dagster as dg
from pydantic import Field

from jobs.destinations.registry import kind_of
from jobs.members.side_by_side import Outcome
from jobs.pipeline import Pipeline
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.tables import Table
from jobs.verify.agreement import row_count_mismatches
from jobs.verify.reconciliation import Verdict, reconcile
from orchestration import names
from orchestration.components import checks
from orchestration.components.config import TopicsConfig
from orchestration.components.failures import as_failures
from orchestration.components.launch import Launch
from orchestration.components.progress import engine_log_in_run
from orchestration.files import most_terminal
from orchestration.pools.pool_waits import PoolWaits
from orchestration.pools.turns import turn
from resources.errors import BatchmergeError

_LOG = logging.getLogger("batchmerge")
# Names of the checks. `checks.KEYS`: the same check as a merge has, of tables whose merges do not count keys.
RECONCILED = "reconciled"
AGREE = "tables_agree"


class VerifyConfig(TopicsConfig):
    """Options of the verification."""

    rows: int = Field(
        default=10_000,
        ge=0,
        description="Rows to compare per table, picked at random; 0: all. Rows are counted in any case.",
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
        problems = list[BatchmergeError]()
        compared = _compare_members if launch.spec.many_tables else _compare_tables
        with as_failures(), engine_log_in_run(context.log):
            yield from compared(launch, context, config, problems)
            if failed := most_terminal(problems):
                raise failed

    return verify


def verify_job(launch: Launch) -> "dg.UnresolvedAssetJobDefinition":
    """Named ``<pipeline>_verify``."""
    return dg.define_asset_job(
        f"{launch.name}_verify",
        selection=dg.AssetSelection.checks(*check_keys(launch)),
        description=f"Compares the tables of {launch.name} with landed changes and with each other. Changes no row.",
        tags={names.VERIFY_TAG: launch.name},
        executor_def=dg.in_process_executor,
    )


def check_keys(launch: Launch) -> list[dg.AssetCheckKey]:
    return [spec.key for spec in _specs(launch)]


def _specs(launch: Launch) -> list[dg.AssetCheckSpec]:
    found = []
    for table in launch.spec.tables:
        key = names.table_key(table)
        description = "the rows of the table, and their values, are those that the landed changes make"
        found.append(dg.AssetCheckSpec(RECONCILED, asset=key, description=description))
        if _counts_keys(table):
            found.append(dg.AssetCheckSpec(checks.KEYS, asset=key, description="no key has more than one row"))
    description = "tables of the same mode have the same number of rows at the same batch"
    return [*found, dg.AssetCheckSpec(AGREE, asset=names.landing_key(launch.name), description=description)]


def _counts_keys(table: Table) -> bool:
    """Whether to count rows per key here: for the other tables every merge counts them."""
    return not kind_of(table).capabilities.counts_keys_at_merge and table.has_unique_key


_Results = Iterator[dg.AssetCheckResult]


def _turn(context: dg.AssetCheckExecutionContext, launch: Launch, table: Table) -> AbstractContextManager[None]:
    """Holds the table's pool, so that merges wait: a table that moves on cannot be compared."""
    pool = names.table_pool(launch.name, launch.spec, table)
    return turn(context.op_execution_context, [pool], waits=PoolWaits(context.instance, context.log.info))


def _compare_tables(
    launch: Launch, context: dg.AssetCheckExecutionContext, config: VerifyConfig, problems: list[BatchmergeError]
) -> _Results:
    """Compares one table after the other, each in its turn. A table that cannot be compared has no results: its error
    is added to `problems`."""
    pipeline, verdicts = launch.open(context.run.run_id), list[tuple[Table, Verdict]]()
    for table in launch.spec.tables:
        with _turn(context, launch, table):
            try:
                verdict = _verdict(pipeline, table, config.rows)
            except BatchmergeError as problem:
                _LOG.warning("not compared: %s", problem)
                problems.append(problem)
                continue
        verdicts.append((table, verdict))
        yield from _results(table, verdict)
    yield from _known([_agreement(launch.name, launch.spec, verdicts)], not problems)


def _compare_members(
    launch: Launch, context: dg.AssetCheckExecutionContext, config: VerifyConfig, problems: list[BatchmergeError]
) -> _Results:
    """As `_compare_tables`, for the tables of each topic, or name; combines the results into the checks of their
    entries."""
    found: dict[dg.AssetKey, dict[str, list[dg.AssetCheckResult]]] = {}
    verdicts: dict[str, tuple[PipelineSpec, list[tuple[Table, Verdict]]]] = {}
    incomplete, landing = set[dg.AssetKey](), names.landing_key(launch.name)
    for outcome, entry in _members_in_turns(launch, context, config):
        if outcome.problem:
            problems.append(outcome.problem)
            incomplete |= {entry, landing}
        elif outcome.member and outcome.done:
            table, verdict = outcome.done
            verdicts.setdefault(outcome.key, (outcome.member.spec, []))[1].append((table, verdict))
            found.setdefault(entry, {})[f"{outcome.key} {table.table}"] = list(_results(table, verdict))
    found[landing] = {topic: [_agreement(launch.name, *of_it)] for topic, of_it in verdicts.items()}
    for spec in _specs(launch):
        results = checks.combined_results(spec.asset_key, [spec], found.get(spec.asset_key, {}))
        yield from _known(results, spec.asset_key not in incomplete)


def _members_in_turns(
    launch: Launch, context: dg.AssetCheckExecutionContext, config: VerifyConfig
) -> Iterator[tuple[Outcome[tuple[Table, Verdict]], dg.AssetKey]]:
    """The outcomes of an entry's tables, and the entry."""
    members = launch.members(context.run.run_id, config.topics)
    for number, entry in enumerate(launch.spec.tables):

        def work(pipeline: Pipeline, number: int = number) -> tuple[Table, Verdict] | None:
            if not pipeline.intermediate.landed().batches:
                return None
            table = pipeline.table(number)
            return table, _verdict(pipeline, table, config.rows)

        for outcome in members.in_turns("verify", work, partial(_turn, context, launch, entry)):
            yield outcome, names.table_key(entry)


def _known(results: Sequence[dg.AssetCheckResult], complete: bool) -> _Results:
    """Of checks of several tables: those that failed, and the others too if every one of these tables was compared."""
    return (result for result in results if complete or not result.passed)


def _verdict(pipeline: Pipeline, table: Table, rows: int) -> Verdict:
    """Raises BatchmergeError: the table cannot be compared, which does not stop the others."""
    destination = pipeline.destination_of(table)
    name, limit = destination.name, table.time_limit_seconds
    return pipeline.in_time(limit, name, lambda: reconcile(pipeline, destination, rows), f"verify {name}")


def _results(table: Table, verdict: Verdict) -> _Results:
    key = names.table_key(table)
    further: dict[str, int | str] = {
        "rows of records that are not landed": verdict.beside,
        "refused rows": verdict.refused,
        "left out": ", ".join(verdict.left_out),
    }
    yield dg.AssetCheckResult(
        check_name=RECONCILED,
        asset_key=key,
        passed=not verdict.wrong,
        description="; ".join(verdict.wrong[:5]) or None,
        metadata={
            "batch": verdict.batch,
            "rows": verdict.rows,
            "rows compared": verdict.compared,
            **{name: value for name, value in further.items() if value},
        },
    )
    if _counts_keys(table):
        yield checks.keys_result(key, verdict.duplicates or 0, {"batch": verdict.batch})


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
