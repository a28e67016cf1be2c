"""Tries a proposal on the records from which it was made, with the decoder that a pipeline would use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from jobs.decode.base import Decoder
from jobs.decode.decoders import Schemas, decoder_for
from jobs.decode.envelope import Enveloped
from jobs.decode.unknown import Watch
from jobs.spec.formats import Format
from resources.config_files.models import examine
from resources.errors import ConfigurationError

_MOST = 3  # reasons that are listed


@dataclass(frozen=True)
class Trial:
    """How many records fit a proposal.

    Attributes:
        refused: reasons, with the numbers of records.
    """

    records: int
    refused: Mapping[str, int]

    @property
    def fitting(self) -> int:
        return self.records - sum(self.refused.values())

    @property
    def remarks(self) -> list[str]:
        """The result as remarks for the person who approves the proposal."""
        if not self.refused:
            return [f"all {self.records} records fit"]
        reasons = Counter(self.refused).most_common()
        lines = [f"{count}: {reason}" for reason, count in reasons[:_MOST]]
        lines += [f"{sum(count for _, count in reasons[_MOST:])}: other reasons"] if len(reasons) > _MOST else []
        return [f"{self.fitting} of {self.records} records fit; the others would be dead letters:", *lines]


def trial(document: Mapping[str, Any], records: Sequence[bytes], registered: Schemas | None) -> Trial:
    """Decodes the records by this `source.key` or `source.value`. The records contain no tombstones."""
    judged = examine(Format, document)
    if judged.value is None:
        return Trial(len(records), {"; ".join(mistake.sentence for mistake in judged.mistakes): len(records)})
    try:
        errors = _decoder(judged.value, registered).decode(pa.array(records, pa.binary())).errors
    except ConfigurationError as problem:
        return Trial(len(records), {str(problem): len(records)})
    return Trial(len(records), Counter(error.message for error in errors.values()))


def _decoder(format: Format, registered: Schemas | None) -> Decoder:
    def of_type(kind: pa.DataType, watch: Watch | None = None) -> Decoder:
        return decoder_for(format.format, kind, registered=registered, watch=watch)

    return Enveloped(format.struct, format.envelope.rules, of_type) if format.envelope else of_type(format.struct)
