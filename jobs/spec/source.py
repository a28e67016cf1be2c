"""The `source` part of a pipeline file: topics, formats, where to start."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from jobs.schema.found_fields import Path as FieldPath
from jobs.spec.base import Expression, Names, Spec
from jobs.spec.encoding import Encoding
from jobs.spec.formats import RecordKey
from jobs.spec.transform import Resolved, Transform
from jobs.spec.value import Value
from resources.config_files.mistakes import Mistake, Mistakes, Path, did_you_mean
from resources.errors import ConfigurationError


class TopicEncodings(Spec):
    """The encoding of one topic's records if it differs from the others; the columns are the same."""

    key: Encoding | None = None
    value: Encoding | None = None


# As Kafka has it.
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_TOPIC_REMEDY = (
    "write at most 249 letters, digits, `.`, `_` and `-`; `pattern` takes a regular expression; `${env:…}` is for the "
    "connections file alone"
)


class FromTimestamp(Spec):
    """Start at the first record at or after this time."""

    timestamp: datetime


class FromOffsets(Spec):
    """Start at these offsets; a partition that is not named starts at its first record."""

    offsets: dict[str, dict[int, int]] = Field(description="topic to partition to offset")


def _form(given: object) -> str:
    """The form in which `start` is written."""
    if isinstance(given, FromOffsets) or (isinstance(given, dict) and "offsets" in given):
        return "at offsets"
    return "at a time" if isinstance(given, (dict, FromTimestamp)) else "by name"


Start = Annotated[
    Annotated[Literal["earliest", "latest"], Tag("by name")]
    | Annotated[FromTimestamp, Tag("at a time")]
    | Annotated[FromOffsets, Tag("at offsets")],
    Discriminator(_form),
]


class Source(Spec):
    """Which records a pipeline reads."""

    connection: str = Field("kafka", description="name of the Kafka connection")
    topics: Names = Field(default_factory=list, description="topic names")
    pattern: Expression | None = Field(
        None,
        description="regular expression that the whole name of a topic must match. It never matches topics that "
        "the pipeline writes (control, dead letters)",
    )
    for_each: Literal["topic"] | None = Field(
        None,
        description="topic: each topic has its own tables, with `{topic}` or a part of it in their names. Left "
        "out: all topics go into the same tables",
    )
    key: RecordKey | None = Field(None, description="the record's key; left out: not decoded")
    value: Value
    transform: Transform | None = Field(
        None, description="a Spark SQL `select … from records`, applied to each decoded record before landing"
    )
    per_topic: dict[str, TopicEncodings] = Field(
        default_factory=dict,
        description="topic to {key: …, value: …}: the encoding of a topic that is encoded in another way. The "
        "columns are those of `key` and `value`",
    )
    start: Start = Field(
        "earliest", description="where a new pipeline begins: earliest, latest, {timestamp: …} or {offsets: …}"
    )

    def own_mistakes(self) -> Iterator[Mistake]:
        if self.topics and self.pattern:
            yield Mistake(("pattern",), "there are `topics` too", "name either `topics` or a `pattern`")
        elif not (self.topics or self.pattern):
            remedy = "name either `topics` or a `pattern`"
            yield Mistake(("topics",), "no topic is named", remedy, goes_by=(("pattern",),))
        for number, topic in enumerate(self.topics):
            if not _TOPIC.fullmatch(topic):
                yield Mistake(("topics", number), f"{topic!r} cannot be a topic's name", _TOPIC_REMEDY)
        unread = set(self.per_topic).difference(self.topics) if self.topics else set()
        for topic in sorted(unread):
            remedy = did_you_mean(topic, self.topics)
            yield Mistake(("per_topic", topic), f"{topic} is not among the topics", remedy, at_key=True)
        if self.key and self.key.envelope and self.key.envelope.kind != "mongo":
            what = f"{self.key.envelope.kind} wraps values, not keys"
            yield Mistake(("key", "envelope"), what, "leave it out; only mongo applies to keys")
        of_json = any(encoding.format == "json" for _, encoding in self.encodings)
        for mistake in self.value.dialect_mistakes(of_json, self.key.columns if self.key else {}):
            yield mistake.below(("value",))

    @model_validator(mode="after")
    def _transform_is_right(self) -> Source:
        try:
            self.resolved  # noqa: B018
        except ConfigurationError as problem:
            raise Mistakes([Mistake(("transform", "sql"), problem.what, problem.remedy)]) from None
        return self

    def may_have(self, topic: str) -> bool:
        """Whether a topic of this name is, or would be, one of the source's topics."""
        return topic in self.topics or bool(self.pattern and re.fullmatch(self.pattern, topic))

    @property
    def key_is_open(self) -> bool:
        """Whether the columns of the record's key are left to the records."""
        return self.key is not None and self.key.takes_new_columns

    @property
    def resolved(self) -> Resolved | None:
        """The transform, resolved against the declared columns. Raises ConfigurationError if it is invalid."""
        if self.transform is None:
            return None
        key = tuple(self.key.columns.items()) if self.key else None
        return _resolved(
            self.transform.sql, tuple(self.transform.columns.items()), tuple(self.value.columns.items()), key
        )

    @property
    def lost(self) -> frozenset[FieldPath]:
        """Columns of the value in which new fields become no columns, since the transform does not pass them on."""
        resolved = self.resolved
        return frozenset((name,) for name in self.value.columns if resolved and name not in resolved.unchanged)

    @property
    def row(self) -> Mapping[str, str]:
        """The columns of `value` in landed rows, with types: the transform's result, else the decoded columns."""
        resolved = self.resolved
        return resolved.columns if resolved else self.value.columns

    @property
    def registries(self) -> list[str]:
        """Names of the Schema Registry connections that the records need."""
        return sorted({encoding.registry for _, encoding in self.encodings if encoding.registry})

    @property
    def encodings(self) -> list[tuple[Path, Encoding]]:
        """How keys and values are encoded, also those of single topics, each with its path in `source`."""
        owners: dict[Path, Spec] = {(): self, **{("per_topic", topic): own for topic, own in self.per_topic.items()}}
        found = [((*at, part), getattr(owner, part)) for at, owner in owners.items() for part in ("key", "value")]
        return [(path, encoding) for path, encoding in found if encoding]


Items = tuple[tuple[str, str], ...]


@lru_cache(256)
def _resolved(sql: str, columns: Items, value: Items, key: Items | None) -> Resolved:
    """The resolved transform, cached since it is needed often."""
    from jobs.spec.transform_statement import resolve  # imported here: an SQL parser that most files do not need

    return resolve(Transform(sql=sql, columns=dict(columns)), dict(value), dict(key) if key else None)
