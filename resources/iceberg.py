"""An Iceberg catalog through pyiceberg: load, create and commit tables, with errors in our own words.

Spark reaches the same catalog by `spark_settings`: the connection's name is the catalog's name on both sides.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import Any

import sqlalchemy.exc
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    ServerError,
)
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import TableRequirement, TableUpdate
from sqlalchemy.engine import URL, make_url

from resources import iceberg_arrow, iceberg_avro  # noqa: F401  # change how pyiceberg reads rows and manifests
from resources.connections import IcebergConnection
from resources.errors import (
    CommitStateUnknown,
    ConfigurationError,
    TableReplaced,
    Unavailable,
)
from resources.iceberg_errors import UNREADABLE, catalog_errors
from resources.iceberg_io import RenewedFileIO, ends_at
from resources.iceberg_statistics import accept_all_types
from resources.iceberg_transaction import TableChange, commit_transaction, require_transactions, same_table

# Tries of a commit that the catalog refuses.
_COMMIT_TURNS = 3
# Seconds that a table's last change may be ahead of this machine's clock.
_CLOCKS_APART = 60
# Spark's UI lists the settings of a session beside each statement, and by itself hides only some of the secret ones.
_HIDDEN = {"spark.sql.redaction.options.regex": "(?i)url|uri|key|credential|authorization|secret|password|token"}
_SPARK_TYPES = {"sql": "jdbc", "rest": "rest", "hive": "hive", "glue": "glue"}


class IcebergCatalog:
    """One catalog of the connections file.

    Attributes:
        name: the connection's name; also the catalog's name in Spark SQL.
    """

    def __init__(self, name: str, connection: IcebergConnection) -> None:
        self.name = name
        self._connection = connection
        self._opened: Catalog | None = None
        self._opening = Lock()

    def spark_path(self, identifier: str) -> tuple[str, ...]:
        """The table's path in Spark SQL."""
        return (self.name, *identifier.split("."))

    @property
    def _catalog(self) -> Catalog:
        # Checked at each use: a file that was moved away can still be read, and only a commit would fail.
        self._require_database()
        # The topics of a pipeline share the catalog; two that open a new database at once would disturb each other.
        with self._opening:
            if self._opened is None:
                self._database()
                if self._connection.type == "rest":
                    from resources.iceberg_rest import bound_requests  # its client, which the others need not have

                    bound_requests()
                with catalog_errors(f"catalog {self.name}"):
                    self._opened = load_catalog(self.name, **self._properties())
            return self._opened

    def _require_database(self) -> None:
        """A missing SQLite file would be made again, empty: all tables would seem to be gone, and be made again."""
        uri = self._connection.uri or ""
        file = uri.removeprefix("sqlite:///").partition("?")[0]
        if uri.startswith("sqlite:///") and file != ":memory:" and not Path(file).is_file():
            raise Unavailable(
                "the catalog's database file does not exist",
                where=f"catalog {self.name} ({file})",
                remedy="restore it, or check `uri`; for a new catalog make an empty file (`batchmerge up` does)",
            )

    def _database(self) -> URL | None:
        """The address of a catalog in a database; None for other catalogs. Raises ConfigurationError."""
        if self._connection.type != "sql" or not self._connection.uri:
            return None
        url = None
        with suppress(sqlalchemy.exc.ArgumentError, ValueError):  # their texts quote parts of it
            url = make_url(self._connection.uri)
        # An @ or / in the password ends it for SQLAlchemy, and errors would show what is behind it as the host.
        cut = url is not None and "@" in f"{url.host}{url.database}"
        if url is None or cut or ("@" in self._connection.uri and url.username is None):
            raise ConfigurationError(
                "the address of the catalog's database cannot be read",
                where=f"catalog {self.name}",
                remedy="write `uri` as driver://user:password@host:port/database, with %40 for a @ and %2F for a / in "
                "the password",
            )
        return url

    def _properties(self) -> dict[str, Any]:
        c = self._connection
        known: dict[str, Any] = {"type": c.type, "uri": c.uri, "warehouse": c.warehouse}
        if "py-catalog-impl" in c.properties:
            del known["type"]
        elif c.type == "sql":
            del known["type"]
            known["py-catalog-impl"] = f"{__package__}.iceberg_sql.RememberingCatalog"
        return {**{k: v for k, v in known.items() if v is not None}, **_access(c), **_tls(c), **c.properties}

    def spark_settings(self) -> dict[str, str]:
        """`spark.sql.catalog.*` settings of a session that uses this catalog. May hold secrets: never log them."""
        c = self._connection
        settings = {"type": _SPARK_TYPES[c.type], "cache-enabled": "false", "warehouse": c.warehouse, "uri": c.uri}
        if "catalog-impl" in c.spark_properties:
            del settings["type"]
        elif c.type == "sql" and c.uri:
            settings |= _jdbc(self._database())
        prefix = f"spark.sql.catalog.{self.name}"
        given = {**settings, **_access(c), **c.spark_properties}
        named = {f"{prefix}.{k}": v for k, v in given.items() if v is not None}
        return {prefix: "org.apache.iceberg.spark.SparkCatalog", **named, **_HIDDEN}

    def load(self, identifier: str) -> Table | None:
        """The table as it is now, or None where there is none."""
        with catalog_errors(identifier):
            try:
                return self._renewing(_loaded(self._catalog, identifier), identifier)
            except NoSuchTableError:
                return None

    def _renewing(self, table: Table, identifier: str) -> Table:
        """The table; if its credentials expire, with files that renew them."""
        if ends_at(table.io):
            table.io = RenewedFileIO(table.io, partial(_newest_io, self.name, self._connection, identifier))
        return table

    def files_at(self, path: str) -> FileIO:
        """A client of files outside of all tables, with what the connection says of the store and nothing vended."""
        return load_file_io(dict(self._catalog.properties), path)

    def require(self, identifier: str) -> Table:
        """The table as it is now.

        Raises:
            TableReplaced: it is gone.
        """
        table = self.load(identifier)
        if table is None:
            raise TableReplaced(
                "the table is gone",
                where=identifier,
                remedy="restore it, or begin a pipeline of another name, with tables of another name",
            )
        return table

    def create(
        self,
        identifier: str,
        schema: Schema,
        partition: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        properties: Mapping[str, str] = MappingProxyType({}),
        sort: SortOrder = UNSORTED_SORT_ORDER,
    ) -> Table:
        """Creates the table, and its namespace where that is missing. Whoever loses a race gets the winner's table."""
        # pyiceberg takes the format version out of what it is given.
        create = partial(self._catalog.create_table_if_not_exists, identifier, schema, None, partition, sort)
        with catalog_errors(identifier):
            try:
                made = create(dict(properties))
            except NoSuchNamespaceError:
                self._create_namespace(identifier.rsplit(".", 1)[0])
                made = create(dict(properties))
            return self._renewing(made, identifier)

    def _create_namespace(self, namespace: str) -> None:
        """Also where another one makes it at the same time.

        A catalog in a database refuses the second one by a key that is there already, and a REST catalog in front of
        a database (Iceberg's own JdbcCatalog) by the status 500.
        """
        try:
            self._catalog.create_namespace(namespace)
        except (NamespaceAlreadyExistsError, sqlalchemy.exc.IntegrityError):
            pass
        except ServerError:
            if not self._catalog.namespace_exists(namespace):
                raise

    def drop(self, identifier: str) -> bool:
        """Drops the table with its files; False where there was none."""
        with catalog_errors(identifier):
            try:
                self._catalog.purge_table(identifier)
            except NoSuchTableError:
                return False
            return True

    def commit(self, table: Table, requirements: Sequence[TableRequirement], updates: Sequence[TableUpdate]) -> None:
        """One conditional commit to this very table, as it was read: all updates or none.

        A catalog also refuses a commit if another one came in between, as of maintenance, although all requirements
        hold. So a refused commit is tried again at once: one whose requirement does not hold is refused again.

        Raises:
            CommitFailed: a requirement does not hold (any more).
            CommitStateUnknown: the answer was lost.
            Unavailable: this machine's clock is behind the table.
            ConfigurationError: the table is of a format version that pyiceberg cannot commit.
        """
        where = ".".join(table.name())
        require_version(table.format_version, where)
        check_clock(table, time.time())
        try:
            with catalog_errors(where):
                for turn in range(1, _COMMIT_TURNS + 1):
                    try:
                        made = self._catalog.commit_table(table, (same_table(table), *requirements), tuple(updates))
                        break
                    except CommitFailedException:
                        if turn == _COMMIT_TURNS:
                            raise
        except Unavailable as lost:
            raise CommitStateUnknown(lost.what, where=where, remedy="the next run looks at the table first") from lost
        # A REST server does it itself. The commit stands even if this fails.
        if self._connection.type != "rest":
            with suppress(Exception):
                self._catalog._delete_old_metadata(table.io, table.metadata, made.metadata)

    def require_transactions(self) -> None:
        """
        Raises:
            ConfigurationError: the catalog cannot commit several tables at once.
        """
        with catalog_errors(f"catalog {self.name}"):
            require_transactions(self._catalog, self.name)

    def commit_together(self, changes: Sequence[TableChange]) -> None:
        """One conditional commit over several tables: all updates of all of them or none.

        Raises:
            CommitFailed: a requirement of one of the tables does not hold.
            CommitStateUnknown: the answer was lost.
            Unavailable: this machine's clock is behind one of them.
        """
        for change in changes:
            check_clock(change.table, time.time())
        where = ", ".join(".".join(change.table.name()) for change in changes)
        try:
            with catalog_errors(where):
                commit_transaction(require_transactions(self._catalog, self.name), changes)
        except Unavailable as lost:
            raise CommitStateUnknown(lost.what, where=where, remedy="the next run looks at the tables first") from lost


def require_version(version: int | str, where: str, remedy: str = "") -> None:
    """Rejects tables of format version 3: pyiceberg can read but not commit them (tried with 0.12).

    Raises:
        ConfigurationError: the table is of such a version.
    """
    if str(version) not in ("1", "2"):
        raise ConfigurationError(
            f"the table's format version is {version}, which cannot be committed yet",
            where=where,
            remedy=remedy or "use a table of format version 2 (`properties: {format-version: '2'}`)",
        )


def check_clock(table: Table, now: float) -> None:
    """Iceberg's readers in Java refuse a table whose history goes back in time by more than a minute.

    Raises:
        Unavailable: the table's last change is later than that.
    """
    behind = table.metadata.last_updated_ms / 1000 - now
    if behind > _CLOCKS_APART:
        raise Unavailable(
            f"the table's last change is {behind:.0f} s ahead of this machine's clock: a commit would make the "
            "table unreadable for Spark",
            where=".".join(table.name()),
            remedy="set the clocks of all machines that write the table (NTP); if one was ahead, wait until its time",
        )


def _loaded(catalog: Catalog, identifier: str) -> Table:
    try:
        return catalog.load_table(identifier)
    except UNREADABLE:
        accept_all_types()
        return catalog.load_table(identifier)


def _newest_io(name: str, connection: IcebergConnection, identifier: str) -> FileIO:
    """A client of the table's files with new credentials; works in any process."""
    catalog = IcebergCatalog(name, connection)
    with catalog_errors(identifier):
        return _loaded(catalog._catalog, identifier).io


def _access(connection: IcebergConnection) -> dict[str, str]:
    """With what a client of a REST catalog is let in; pyiceberg and Spark have the same names for it."""
    given = {"credential": connection.credential, "token": connection.token}
    return {name: secret.get_secret_value() for name, secret in given.items() if secret}


def _tls(connection: IcebergConnection) -> dict[str, Any]:
    """The TLS files of a REST catalog, for pyiceberg."""
    c = connection
    client = {"cert": c.certificate_file, "key": c.key_file} if c.certificate_file else None
    given = {name: value for name, value in (("cabundle", c.ca_file), ("client", client)) if value}
    return {"ssl": given} if given else {}


def _jdbc(url: URL | None) -> dict[str, str]:
    """The database's address for the JVM, from SQLAlchemy's, which has driver, user and password in it."""
    if url is None:
        return {}
    bare = URL.create(url.get_backend_name(), host=url.host, port=url.port, database=url.database, query=url.query)
    address = bare.render_as_string(hide_password=False)
    # SQLAlchemy's absolute path of a file has four slashes.
    address = address.replace("sqlite:////", "sqlite:/").replace("sqlite:///", "sqlite:")
    given = {"jdbc.user": url.username, "jdbc.password": url.password}
    return {"uri": f"jdbc:{address}", "jdbc.schema-version": "V1", **{k: str(v) for k, v in given.items() if v}}
