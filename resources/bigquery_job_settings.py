"""The settings of BigQuery's jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from google.cloud import bigquery

Value = str | int | float | None
Parameter = bigquery.ScalarQueryParameter | bigquery.ArrayQueryParameter


def query_settings(parameters: Sequence[Parameter]) -> bigquery.QueryJobConfig:
    """The settings of every query: in UTC, since the project may have another default time zone."""
    utc = bigquery.ConnectionProperty("time_zone", "UTC")
    return bigquery.QueryJobConfig(query_parameters=list(parameters), connection_properties=[utc])


def parameters_of(values: Mapping[str, Value]) -> list[bigquery.ScalarQueryParameter]:
    kinds = {int: "INT64", float: "FLOAT64", str: "STRING", type(None): "STRING"}
    return [bigquery.ScalarQueryParameter(name, kinds[type(value)], value) for name, value in values.items()]


def append_settings(schema: Sequence[Any], labels: Mapping[str, str], endpoint: str | None) -> bigquery.LoadJobConfig:
    """The settings of a load job that appends Parquet to an existing table.

    Args:
        schema: the table's fields, each by `name`, `field_type`, `mode`, `fields` and `to_api_repr`.
        endpoint: of the emulator; None: Google's.
    """
    config = bigquery.LoadJobConfig(
        source_format=bigquery.SourceFormat.PARQUET,
        write_disposition=bigquery.WriteDisposition.WRITE_APPEND,
        create_disposition=bigquery.CreateDisposition.CREATE_NEVER,
        decimal_target_types=["NUMERIC", "BIGNUMERIC"],
        labels=dict(labels),
    )
    config.parquet_options = bigquery.ParquetOptions.from_api_repr({"enableListInference": True})
    # Given a schema, the emulator takes BYTES in Parquet for base64; the table's own schema does as well there.
    if not (endpoint and _has_bytes(schema)):
        config.schema = [field.to_api_repr() for field in schema]
    return config


def _has_bytes(fields: Sequence[Any]) -> bool:
    return any(field.field_type == "BYTES" or _has_bytes(field.fields) for field in fields)
