"""The decoders by the format's name in a pipeline file."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from jobs.decode.base import Decoder
from jobs.decode.json_fast import Json
from jobs.decode.text import Bytes, Text
from resources.errors import ConfigurationError

DECODERS: dict[str, Callable[[pa.DataType], Decoder]] = {"json": Json, "string": Text, "bytes": Bytes}


def decoder_for(format: str, type: pa.DataType) -> Decoder:
    """The decoder of a format for a declared type: a struct of the columns, or a scalar for a key of one value.

    Raises:
        ConfigurationError: unknown format, or a type that the format cannot carry.
    """
    if format not in DECODERS:
        raise ConfigurationError(f"unknown format {format!r}", remedy=f"use one of {', '.join(sorted(DECODERS))}")
    return DECODERS[format](type)
