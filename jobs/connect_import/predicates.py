"""Translates predicates of transforms to SQL conditions on records (not tombstones)."""

from __future__ import annotations

from jobs.connect_import.chain import Chain
from jobs.connect_import.configured import Predicate
from sql import literal

ALWAYS, NEVER = "true", "false"
TOMBSTONE = "RecordIsTombstone"


def condition(chain: Chain, predicate: Predicate | None) -> str | None:
    """The condition, `ALWAYS` or `NEVER`; None: the predicate is unknown."""
    if predicate is None:
        return ALWAYS
    if predicate.kind == TOMBSTONE:
        return ALWAYS if predicate.negated else NEVER
    if predicate.kind == "TopicNameMatches":
        pattern = literal(f"^(?:{predicate.options.get('pattern', '')})$")
        found = f"({chain.seen('_topic')} rlike {pattern})"
    elif predicate.kind == "HasHeaderKey":
        wanted = literal(predicate.options.get("name", ""))
        # A record without headers has null in `_headers`.
        found = f"coalesce(exists({chain.seen('_headers')}, h -> h.key = {wanted}), false)"
    else:
        return None
    return f"(not {found})" if predicate.negated else found
