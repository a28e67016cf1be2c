"""A task on its way to Spark's Python workers, which open it only if they have the code that it was made by."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from typing import Any, NoReturn

import pyarrow as pa
from pydantic import BaseModel

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
        return _opened, (OWN_CODE, _pickled(self.task))


def _pickled(task: _Function) -> bytes:
    from pyspark import cloudpickle

    class Pickler(cloudpickle.Pickler):
        def reducer_override(self, found: Any) -> Any:
            usual: Callable[[Any], Any] = super().reducer_override
            return _without_computed(found) if isinstance(found, BaseModel) else usual(found)

    file = BytesIO()
    pickler: pickle.Pickler = Pickler(file)  # type: ignore[no-untyped-call]
    pickler.dump(task)
    return file.getvalue()


def _without_computed(model: BaseModel) -> tuple[object, ...]:
    """How a model is pickled without its cached properties: another thread may compute one meanwhile, as of a schema of
    pyiceberg, and a dictionary that grows cannot be pickled."""
    usual: Any = model.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
    make, arguments, state, *_ = usual
    held = state["__dict__"].copy()  # with the private attributes of a `RootModel`
    computed = {name for name in held if isinstance(getattr(type(model), name, None), cached_property)}
    return make, arguments, {**state, "__dict__": {name: value for name, value in held.items() if name not in computed}}


def _opened(code: str, pickled: bytes) -> _Function:
    return _refused if is_other_code(code) else SentTask(pickle.loads(pickled))


def _refused(_: Iterable[pa.RecordBatch]) -> NoReturn:
    with carrying_errors():
        raise other_code_in_worker()
