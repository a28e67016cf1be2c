"""Formats of other packages, found by their entry points (`batchmerge.formats`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING

from jobs.entry_points import Brought, brought
from resources.errors import BatchmergeError, ConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa

    from jobs.decode.base import Decoder
    from jobs.decode.unknown import Watch

GROUP = "batchmerge.formats"
MakeDecoder = Callable[["pa.DataType", Mapping[str, str], "Watch | None"], "Decoder"]
"""From a declared type, the `options` of the pipeline file, and what to do about fields without a column."""


@cache
def foreign_formats() -> Mapping[str, Brought]:
    """The formats that other packages bring, by name; raises ConfigurationError if two bring the same."""
    return brought(GROUP, "format")


def foreign_decoder(name: str, kind: pa.DataType, options: Mapping[str, str], watch: Watch | None) -> Decoder:
    """The decoder of a format of another package; raises ConfigurationError if that cannot make it."""
    one = foreign_formats()[name]
    make: MakeDecoder = one.load()
    try:
        return make(kind, options, watch)
    except BatchmergeError:
        raise
    except Exception as problem:
        what = f"{one.point.value} makes no decoder: {type(problem).__name__}: {problem}"
        raise ConfigurationError(what, where=one.where, remedy="correct `options`, or update that package") from problem
