"""Opens registries of schemas by their connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from resources.connections import GlueSchemaRegistryConnection, RegistryConnection, SchemaRegistryConnection
from resources.schema_registry import SchemaRegistry

if TYPE_CHECKING:
    from resources.stored_schema import Registry


def open_registry(name: str, connection: RegistryConnection) -> Registry:
    """The registry of a connection; nothing is asked yet.

    Raises:
        ConfigurationError: the connection's address holds secrets.
    """
    if isinstance(connection, GlueSchemaRegistryConnection):
        from resources.glue_schema_registry import GlueSchemaRegistry

        return GlueSchemaRegistry(name, connection)
    assert isinstance(connection, SchemaRegistryConnection)
    return SchemaRegistry(name, connection)
