"""Requests to REST catalogs have a time limit, which pyiceberg does not give them: one that accepts and never answers
would hold a step, and the table's pool with it, for hours."""

from __future__ import annotations

from typing import Any

import requests

# Seconds for the connection, and between two bytes of an answer: a commit of a large table may take its time.
LIMIT = (20.0, 120.0)


class BoundedSession(requests.Session):
    """A session with a time limit for each request to which the caller gives none.

    A commit whose answer does not come in time is of unknown state, like any other whose answer is lost.
    """

    def request(self, *args: Any, **given: Any) -> requests.Response:
        return super().request(*args, **{"timeout": LIMIT, **given})


def bound_requests() -> None:
    """Gives the time limit to all REST catalogs that pyiceberg opens from now on."""
    from pyiceberg.catalog import rest

    vars(rest)["Session"] = BoundedSession
