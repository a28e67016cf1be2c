"""The same varied records in every format: the decoders alone, in records a second of CPU."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Iterator

import pyarrow as pa

from tests.benchmarks._formats import FORMATS, Encoded
from tests.benchmarks._records import rows
from tests.benchmarks._report import Measure, report

_BATCH = 10_000


def measure(options: Namespace) -> Iterator[Measure]:
    for one in FORMATS:
        yield Measure(what=one.name, unit="records/s", turns=_decoded(one, options.turns))


def _decoded(one: Encoded, turns: int) -> tuple[float, ...]:
    """Records in a second of CPU."""
    raw, decoder = pa.array(one(rows(range(_BATCH))), pa.binary()), one.decoder()
    assert not decoder.decode(raw).errors
    found = []
    for _ in range(turns):
        began = time.process_time()
        for _ in range(10):
            decoder.decode(raw)
        found.append(10 * _BATCH / (time.process_time() - began))
    return tuple(found)


if __name__ == "__main__":
    report(__doc__, measure, turns=(3, 1))
