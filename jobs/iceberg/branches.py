"""Names of the branches that attempts and maintenance write to. They contain the pipeline and the start time. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

_TIME = "%Y%m%dT%H%M%S"
_NAME = re.compile(r"(?:attempt|maintenance)--.*--(?P<begun>\d{8}T\d{6})-[0-9a-f]{32}")


def attempt_prefix(pipeline: str, target: str) -> str:
    """The prefix of the branches of all attempts of one pipeline on one target branch."""
    return f"attempt--{pipeline}--{target}--"


def attempt_branch(pipeline: str, target: str, attempt: str, now: datetime) -> str:
    """The branch of one attempt (a UUID in hex)."""
    return f"{attempt_prefix(pipeline, target)}{now.astimezone(UTC):{_TIME}}-{attempt}"


def maintenance_branch(pipeline: str, target: str, attempt: str, now: datetime) -> str:
    """The branch of a compaction."""
    return f"maintenance--{pipeline}--{target}--{now.astimezone(UTC):{_TIME}}-{attempt}"


def begun_at(branch: str) -> datetime | None:
    """When the branch's attempt or compaction began; None for a branch that is not ours."""
    found = _NAME.fullmatch(branch)
    return datetime.strptime(found["begun"], _TIME).replace(tzinfo=UTC) if found else None


def attempts_since(branches: Iterable[str], since: datetime) -> list[str]:
    """Branches of attempts, of any pipeline, that began at `since` or later: they may be alive."""
    return [b for b in branches if b.startswith("attempt--") and (begun := begun_at(b)) and begun >= since]


def begun_before(branches: Iterable[str], instant: datetime) -> list[str]:
    """Branches of attempts and compactions that began before this time: dead if it is long enough ago."""
    return [b for b in branches if (begun := begun_at(b)) and begun < instant]


def alive_for(seconds: float) -> timedelta:
    """How long after its start an attempt with this time limit may still commit, since clocks differ."""
    return timedelta(seconds=seconds) + timedelta(minutes=5)
