"""The credentials of a BigQuery connection."""

from __future__ import annotations

import json
from typing import Any

from google.auth.credentials import AnonymousCredentials
from google.oauth2 import service_account

from resources.connections import BigQueryConnection
from resources.errors import ConfigurationError


def credentials_of(connection: BigQueryConnection, name: str) -> Any:
    """The credentials of the connection; None: the client takes application default credentials. An emulator gets none
    unless the connection has some."""
    scopes = ["https://www.googleapis.com/auth/bigquery"]
    try:
        if connection.credentials_json:
            info = json.loads(connection.credentials_json.get_secret_value())
            return service_account.Credentials.from_service_account_info(info, scopes=scopes)
        if connection.credentials_file:
            return service_account.Credentials.from_service_account_file(connection.credentials_file, scopes=scopes)
    except (OSError, ValueError) as problem:
        # The exception's text may quote the secret.
        raise ConfigurationError(
            f"BigQuery: the credentials cannot be read ({type(problem).__name__})",
            where=f"connection {name}",
            remedy="give the JSON of a service account key in `credentials_file` or `credentials_json`",
        ) from None
    return AnonymousCredentials() if connection.endpoint else None
