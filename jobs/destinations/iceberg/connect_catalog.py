"""The catalog of an Iceberg sink, as a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobs.connect_import.configuration import Configuration
from jobs.connect_import.connect import environment, without_secrets
from resources.connections import Connections, IcebergConnection

if TYPE_CHECKING:
    from resources.iceberg import IcebergCatalog

_TYPES = {
    "rest": "rest",
    "hive": "hive",
    "glue": "glue",
    "jdbc": "sql",
    "org.apache.iceberg.rest.RESTCatalog": "rest",
    "org.apache.iceberg.hive.HiveCatalog": "hive",
    "org.apache.iceberg.aws.glue.GlueCatalog": "glue",
    "org.apache.iceberg.jdbc.JdbcCatalog": "sql",
}


def connection_name(configuration: Configuration) -> str:
    """The connection's name; that of the sink's catalog where it is part of each table's row in a database."""
    is_sql = _TYPES.get(_given(configuration)) == "sql"
    return (configuration.name_part("iceberg.catalog") or "iceberg") if is_sql else "lake"


def connection(configuration: Configuration) -> dict[str, Any]:
    """The Iceberg connection, secrets as references to the environment."""
    given = configuration.below("iceberg.catalog.")
    found: dict[str, Any] = {"kind": "iceberg", "type": _TYPES.get(_given(configuration), "rest")}
    for name in ("uri", "warehouse"):
        if name in given:
            found[name] = without_secrets(f"iceberg.catalog.{name}", given[name])
    if secret := next((name for name in ("credential", "token") if name in given), None):
        found[secret] = environment(f"iceberg.catalog.{secret}")
    known = {"type", "catalog-impl", "uri", "warehouse", "credential", "token"}
    rest = {k: without_secrets(f"iceberg.catalog.{k}", v) for k, v in given.items() if k not in known}
    return {**found, **({"properties": rest, "spark_properties": rest} if rest else {})}


def todo(configuration: Configuration) -> list[str]:
    """What a person has to do in the connection."""
    catalog, name = _given(configuration), connection_name(configuration)
    if _TYPES.get(catalog) == "sql":
        return [f"the connection has to be named {name}, since a JDBC catalog lists tables under its name; write its "
                "`uri` as postgresql+psycopg2://user:password@host/db (others alike), without `jdbc.user`"]  # fmt: skip
    if not catalog or catalog in _TYPES:
        return []
    return [f"the catalog {catalog} is none that Batchmerge has, and the connection `lake` says rest: give it a `type` "
            "(rest, hive, glue, sql) that reaches the same tables"]  # fmt: skip


def opened(configuration: Configuration, connections: Connections) -> IcebergCatalog:
    from resources.iceberg import IcebergCatalog

    name = connection_name(configuration)
    return IcebergCatalog(name, connections.get(name, IcebergConnection))


def _given(configuration: Configuration) -> str:
    given = configuration.below("iceberg.catalog.")
    return given.get("type") or given.get("catalog-impl", "")
