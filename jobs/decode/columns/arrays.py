"""Arrow arrays over numpy's memory. (`pyarrow.array` would import pandas.)"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def arrow(values: npt.NDArray[Any], absent: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """An array of these numbers or booleans; null where `absent`."""
    kind = pa.from_numpy_dtype(values.dtype)
    held = np.packbits(values, bitorder="little") if values.dtype == np.bool_ else np.ascontiguousarray(values)
    present = None if absent is None else pa.py_buffer(np.packbits(~absent, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [present, pa.py_buffer(held)])
