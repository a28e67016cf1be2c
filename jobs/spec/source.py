"""The `source` part of a pipeline file: topics, formats, where to start."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Literal

from pydantic import Field, model_validator

from jobs.spec.base import Columns, Spec


class Format(Spec):
    """How the bytes of a record's key or value become columns."""

    format: Literal["json", "string", "bytes"] = Field("json", description="how the bytes are encoded")
    columns: Columns

    @model_validator(mode="after")
    def _scalar_formats_have_one_column(self) -> Format:
        if self.format in ("string", "bytes") and len(self.columns) != 1:
            raise ValueError(f"format {self.format} gives one column; {len(self.columns)} are declared")
        return self


class FromTimestamp(Spec):
    """Start at the first record at or after this time."""

    timestamp: datetime


class FromOffsets(Spec):
    """Start at these offsets; a partition that is not named starts at its first record."""

    offsets: dict[str, dict[int, int]] = Field(description="topic to partition to offset")


class Source(Spec):
    """Which records a pipeline reads."""

    connection: str = Field("kafka", description="name of the Kafka connection")
    topics: list[str] = Field(default_factory=list, description="topic names")
    pattern: str | None = Field(None, description="regular expression that topic names must match as a whole")
    key: Format | None = Field(None, description="the record's key; left out: not decoded")
    value: Format
    start: Literal["earliest", "latest"] | FromTimestamp | FromOffsets = Field(
        "earliest", description="where a new pipeline begins: earliest, latest, {timestamp: …} or {offsets: …}"
    )

    @model_validator(mode="after")
    def _topics_or_pattern(self) -> Source:
        if bool(self.topics) == bool(self.pattern):
            raise ValueError("name either `topics` or a `pattern`")
        if len(set(self.topics)) != len(self.topics):
            raise ValueError("a topic is named twice")
        try:
            re.compile(self.pattern or "")
        except re.error as problem:
            raise ValueError(f"`pattern` is no regular expression: {problem}") from None
        return self
