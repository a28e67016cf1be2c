"""A task on its way to Spark's Python workers, which open it only if they have the code that it was made by."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NoReturn

import pyarrow as pa

from resources.carried_errors import carrying_errors
from resources.own_code import OWN_CODE, is_other_code, other_code_in_worker

_Function = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]


@dataclass(frozen=True)
class SentTask:
    """Is pickled as bytes beside the digest of our code: other code could not even unpickle the task, or would take
    its values for others."""

    task: _Function

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        return self.task(batches)

    def __reduce__(self) -> tuple[object, ...]:
        from pyspark import cloudpickle

        return _opened, (OWN_CODE, cloudpickle.dumps(self.task))


def _opened(code: str, pickled: bytes) -> _Function:
    return _refused if is_other_code(code) else SentTask(pickle.loads(pickled))


def _refused(_: Iterable[pa.RecordBatch]) -> NoReturn:
    with carrying_errors():
        raise other_code_in_worker()
