"""Google's own SQL analyzer, started once a session: it takes a quarter of a minute."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from jobs.destinations.bigquery.field import AnyField

Tables = Mapping[str, tuple[Sequence[AnyField], bool]]
Analyze = Callable[[str, Tables, Mapping[str, str]], None]

_KINDS = {"INTEGER": "INT64", "FLOAT": "DOUBLE", "BOOLEAN": "BOOL"}


def _quickly_compiled() -> Any:
    """Half the time: its few statements do not pay for a better program."""
    from wasmtime import Config

    config = Config()
    config.cranelift_opt_level = "none"
    config.cranelift_flag_set("regalloc_algorithm", "single_pass")
    config.cache = True  # compiled once on a machine
    return config


@pytest.fixture(scope="session")
def analyze() -> Analyze:
    """`analyze(sql, tables, parameters)`: raises where BigQuery's dialect does not accept the statement.

    Args of it: tables by ``project.dataset.table`` with their fields and whether they are partitioned by ingestion
    time; query parameters by name with their type.
    """
    if importlib.util.find_spec("zetasql") is None:
        pytest.skip("the Python package zetasql is not installed")
    from zetasql.core import wasm_client

    wasm_client.Config = _quickly_compiled
    from zetasql.api import Analyzer, CatalogBuilder, TableBuilder, TypeFactory
    from zetasql.types import (
        AnalyzerOptions,
        LanguageOptions,
        ProductMode,
        SimpleColumn,
        TypeKind,
        ZetaSQLBuiltinFunctionOptions,
    )

    language = LanguageOptions.maximum_features()
    language.product_mode = ProductMode.PRODUCT_EXTERNAL
    language.reserved_keywords = [*language.reserved_keywords, "QUALIFY"]
    functions = ZetaSQLBuiltinFunctionOptions(language_options=language)

    def scalar(kind: str) -> Any:
        return TypeFactory.create_simple_type(getattr(TypeKind, f"TYPE_{_KINDS.get(kind, kind)}"))

    def type_of(field: AnyField) -> Any:
        kind = (
            TypeFactory.create_struct_type([(f.name, type_of(f)) for f in field.fields])
            if field.field_type == "RECORD"
            else scalar(field.field_type)
        )
        return TypeFactory.create_array_type(kind) if field.mode == "REPEATED" else kind

    def table(name: str, fields: Sequence[AnyField], by_ingestion_time: bool) -> Any:
        builder = TableBuilder(name)
        for field in fields:
            builder.add_column(field.name, type_of(field))
        built = builder.build()
        if by_ingestion_time:
            built.column.append(
                SimpleColumn(
                    name="_PARTITIONTIME", type=scalar("TIMESTAMP"), is_pseudo_column=True, is_writable_column=True
                )
            )
        return built

    def check(sql: str, tables: Tables, parameters: Mapping[str, str]) -> None:
        catalog = CatalogBuilder("c")
        for name, (fields, by_ingestion_time) in tables.items():
            catalog = catalog.add_table(table(name, fields, by_ingestion_time))
        declared = [AnalyzerOptions.QueryParameter(name=n, type=scalar(kind)) for n, kind in parameters.items()]
        options = AnalyzerOptions(language_options=language, query_parameters=declared)
        Analyzer(options, catalog.with_builtin_functions(functions).build()).analyze_statement(sql)

    return check
