"""One commit over several tables, where the catalog can: the REST endpoint `transactions/commit`.

pyiceberg 0.12 commits one table at a time, so the request is made here, through the session of its REST catalog.
https://github.com/apache/iceberg/blob/main/open-api/rest-catalog-open-api.yaml (commitTransaction)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    CommitFailedException,
    CommitStateUnknownException,
    UnauthorizedError,
)
from pyiceberg.table import CommitTableRequest, Table, TableIdentifier
from pyiceberg.table.update import AssertTableUUID, TableRequirement, TableUpdate
from pyiceberg.typedef import UTF8

from resources.errors import ConfigurationError

if TYPE_CHECKING:
    from pyiceberg.catalog.rest import RestCatalog

_ENDPOINT = "POST /v1/{prefix}/transactions/commit"
_UNKNOWN = (500, 502, 503, 504)


@dataclass(frozen=True)
class TableChange:
    """A table's part of a commit: what must still hold, and what then changes."""

    table: Table
    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]


def same_table(table: Table) -> TableRequirement:
    """The table is still the one that was read, and no other of its name."""
    return AssertTableUUID(uuid=table.metadata.table_uuid)


def require_transactions(catalog: Catalog, name: str) -> RestCatalog:
    """The catalog, if it can commit several tables at once.

    Raises:
        ConfigurationError: it cannot, or does not say that it can.
    """
    from pyiceberg.catalog.rest import Endpoint, RestCatalog  # other catalogs need none of it

    if isinstance(catalog, RestCatalog) and Endpoint.from_string(_ENDPOINT) in catalog._supported_endpoints:
        return catalog
    raise ConfigurationError(
        "the catalog cannot commit several tables at once",
        where=f"catalog {name}",
        remedy="use a REST catalog that offers `transactions/commit`, or `commit: each`",
    )


def commit_transaction(catalog: RestCatalog, changes: Sequence[TableChange]) -> None:
    """All changes or none.

    Raises:
        CommitFailedException: a requirement of one of the tables does not hold.
        CommitStateUnknownException: the answer was lost.
    """
    requests = [
        CommitTableRequest(
            identifier=TableIdentifier(namespace=change.table.name()[:-1], name=change.table.name()[-1]),
            requirements=(same_table(change.table), *change.requirements),
            updates=change.updates,
        ).model_dump_json()
        for change in changes
    ]
    body = f'{{"table-changes":[{",".join(requests)}]}}'
    try:
        _post(catalog, body)
    except (UnauthorizedError, AuthorizationExpiredError):  # as pyiceberg's own requests: once more, by a new token
        catalog._refresh_token()
        _post(catalog, body)


def _post(catalog: RestCatalog, body: str) -> None:
    from pyiceberg.catalog.rest.response import _handle_non_200_response
    from requests import HTTPError

    response = catalog._session.post(catalog.url("transactions/commit"), data=body.encode(UTF8))
    try:
        response.raise_for_status()
    except HTTPError as problem:
        unknown = dict.fromkeys(_UNKNOWN, CommitStateUnknownException)
        _handle_non_200_response(problem, {409: CommitFailedException, **unknown})
