"""Imports `pyarrow.dataset` without pandas, which takes a quarter of a second and which no command needs.

That module makes a value when it is imported, and pyarrow then looks whether pandas is there. It imports pandas later,
if it is asked for something that takes pandas (`to_pandas`).
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from threading import get_ident


class _NoPandas(MetaPathFinder):
    """For the thread that has made it."""

    def __init__(self) -> None:
        self._thread = get_ident()

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        del path, target
        if fullname == "pandas" and get_ident() == self._thread:
            raise ModuleNotFoundError("not while pyarrow.dataset is imported", name=fullname)


if "pandas" not in sys.modules:
    _finder = _NoPandas()
    sys.meta_path.insert(0, _finder)
    try:
        import pyarrow.dataset  # noqa: F401
    finally:
        sys.meta_path.remove(_finder)
