"""What one connection becomes on both sides: pyiceberg's properties, and the settings of a Spark session."""

from __future__ import annotations

import pytest

from resources.connections import IcebergConnection
from resources.iceberg import IcebergCatalog

Values = dict[str, str]
HIVE_URI = {"uri": "thrift://metastore:9083"}
GLUE_IO = "org.apache.iceberg.aws.s3.S3FileIO"


REMEMBERS = {"py-catalog-impl": "resources.iceberg_sql.RememberingCatalog"}


@pytest.mark.parametrize(
    ("connection", "pyiceberg", "spark"),
    [
        (
            {"type": "sql", "uri": "sqlite:////data/catalog.db", "warehouse": "file:///data/w"},
            {**REMEMBERS, "uri": "sqlite:////data/catalog.db", "warehouse": "file:///data/w"},
            {"type": "jdbc", "uri": "jdbc:sqlite:/data/catalog.db", "jdbc.schema-version": "V1"},
        ),
        (
            {"type": "sql", "uri": "postgresql+psycopg2://db:5432/iceberg", "warehouse": "s3://w"},
            {**REMEMBERS, "uri": "postgresql+psycopg2://db:5432/iceberg", "warehouse": "s3://w"},
            {"type": "jdbc", "uri": "jdbc:postgresql://db:5432/iceberg", "warehouse": "s3://w"},
        ),
        (
            {"type": "sql", "uri": "postgresql://me:secret@db/iceberg?sslmode=require", "warehouse": "s3://w"},
            {"uri": "postgresql://me:secret@db/iceberg?sslmode=require"},
            {"uri": "jdbc:postgresql://db/iceberg?sslmode=require", "jdbc.user": "me", "jdbc.password": "secret"},
        ),
        (
            {"type": "rest", "uri": "https://catalog:8181", "warehouse": "lake", "credential": "id:secret"},
            {"type": "rest", "uri": "https://catalog:8181", "warehouse": "lake", "credential": "id:secret"},
            {"type": "rest", "uri": "https://catalog:8181", "warehouse": "lake", "credential": "id:secret"},
        ),
        (
            {"type": "rest", "uri": "https://catalog:8181", "token": "t"},
            {"type": "rest", "uri": "https://catalog:8181", "token": "t"},
            {"type": "rest", "uri": "https://catalog:8181", "token": "t"},
        ),
        (
            {"type": "hive", **HIVE_URI, "warehouse": "s3://w", "properties": {"hive.hive2-compatible": "true"}},
            {"type": "hive", **HIVE_URI, "warehouse": "s3://w", "hive.hive2-compatible": "true"},
            {"type": "hive", **HIVE_URI, "warehouse": "s3://w"},
        ),
        (
            {
                "type": "glue",
                "warehouse": "s3://w",
                "properties": {"glue.region": "eu-central-1"},
                "spark_properties": {"client.region": "eu-central-1", "io-impl": GLUE_IO},
            },
            {"type": "glue", "warehouse": "s3://w", "glue.region": "eu-central-1"},
            {"type": "glue", "warehouse": "s3://w", "client.region": "eu-central-1", "io-impl": GLUE_IO},
        ),
    ],
)
def test_catalog_by_configuration(connection: dict[str, object], pyiceberg: Values, spark: Values) -> None:
    catalog = IcebergCatalog("lake", IcebergConnection.model_validate({"kind": "iceberg", **connection}))
    properties, settings = catalog._properties(), catalog.spark_settings()
    assert pyiceberg.items() <= properties.items()
    assert settings.pop("spark.sql.catalog.lake") == "org.apache.iceberg.spark.SparkCatalog"
    plain = {name.removeprefix("spark.sql.catalog.lake."): value for name, value in settings.items()}
    assert spark.items() <= plain.items()
    assert plain["cache-enabled"] == "false", "a cached table is stale after a commit by pyiceberg"


def test_a_token_or_what_gets_one() -> None:
    with pytest.raises(ValueError, match="either `credential` or `token`"):
        IcebergConnection.model_validate({"kind": "iceberg", "type": "rest", "token": "t", "credential": "id:secret"})


def test_any_other_catalog_by_its_class() -> None:
    """What has no name of its own: a class on both sides, which rules over `type`."""
    connection = {
        "kind": "iceberg",
        "type": "rest",
        "properties": {"py-catalog-impl": "ours.Catalog"},
        "spark_properties": {"catalog-impl": "ours.Catalog"},
    }
    catalog = IcebergCatalog("lake", IcebergConnection.model_validate(connection))
    assert "type" not in catalog._properties()
    assert "spark.sql.catalog.lake.type" not in catalog.spark_settings()
