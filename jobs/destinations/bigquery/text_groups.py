"""Groups of texts, each for one query. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from jobs.groups import groups

# Bytes of texts in one query: a request may have 10 MB.
_MOST_BYTES = 8_000_000
# Bytes of syntax around each text.
_AROUND = 20


def in_groups(texts: Iterable[str]) -> Iterator[list[str]]:
    """The texts in groups that fit into a request; a larger text alone."""
    return groups(texts, _size, _MOST_BYTES)


def _size(text: str) -> int:
    """As it is sent: the client writes JSON in ASCII, in which a letter of another alphabet takes six bytes."""
    return len(json.dumps(text)) + _AROUND
