"""How the records of each topic are encoded, as `source.per_topic` says."""

from __future__ import annotations

from jobs.spec.encoding import Encoding
from jobs.spec.source import Source


def encodings(source: Source, part: str) -> dict[str | None, Encoding | None]:
    """The encodings of keys or of values by topic; under None that of all other topics. A key may have none."""
    own = {topic: getattr(one, part) for topic, one in source.per_topic.items()}
    return {None: getattr(source, part), **{topic: one for topic, one in own.items() if one}}
