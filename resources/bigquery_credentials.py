"""The credentials of a BigQuery connection."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from google.auth import load_credentials_from_dict
from google.auth.credentials import AnonymousCredentials, with_scopes_if_required

from resources.connections import BigQueryConnection
from resources.errors import ConfigurationError

_SCOPE = "https://www.googleapis.com/auth/bigquery"


def credentials_of(connection: BigQueryConnection, name: str) -> Any:
    """The credentials of the connection; None: the client takes application default credentials. An emulator gets none
    unless the connection has some.

    Raises:
        ConfigurationError: they cannot be read, or are of an unknown type.
    """
    try:
        text = _text(connection)
        if text is not None:
            # The key of a service account needs no type.
            info = {"type": "service_account", **json.loads(text)}
            # Scopes afterwards: with them, those of workload identity would ask Google for their project at once.
            return with_scopes_if_required(load_credentials_from_dict(info)[0], [_SCOPE])
    except Exception as problem:  # google-auth reads nested parts unchecked
        # The exception's text may quote the secret.
        raise ConfigurationError(
            f"BigQuery: the credentials cannot be read ({type(problem).__name__})",
            where=f"connection {name}",
            remedy="give the JSON of a service account key, of workload identity federation, of impersonation or of a "
            "user in `credentials_file` or `credentials_json`",
        ) from None
    return AnonymousCredentials() if connection.endpoint else None


def _text(connection: BigQueryConnection) -> str | None:
    if connection.credentials_json:
        return connection.credentials_json.get_secret_value()
    return Path(connection.credentials_file).read_text() if connection.credentials_file else None
