"""The names that others use: `batchmerge.KafkaPipeline` in pipeline files, `batchmerge.jobs.destinations.base` in a
package with a destination, `batchmerge.orchestration.definitions` as Dagster's code location.

An installed package has all of its modules below this one (`hatch_build.py`), where they collide with no `jobs` or
`resources` of anybody's project. In a checkout they are folders at the top; there these are other names for the same
modules. A checkout is not run where a package is installed too: Spark's workers, which have that one, would not find
the `jobs` of a task.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestration.components import KafkaPipeline
    from orchestration.definitions import with_shared

__all__ = ["KafkaPipeline", "with_shared"]

_PARTS = ("jobs", "orchestration", "resources", "sql")
# What pipeline files of before have as their type, `orchestration.components.KafkaPipeline`.
_OLD = ("orchestration", "orchestration.components")


class _OtherName(MetaPathFinder, Loader):
    """Makes a module known by a second name, as the same module."""

    def __init__(self, real: Callable[[str], str | None]) -> None:
        self._real = real

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        return ModuleSpec(fullname, self) if self._real(fullname) else None

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = import_module(str(self._real(module.__name__)))


def _in_checkout(name: str) -> str | None:
    package, _, real = name.partition(".")
    return real if package == __name__ and real.partition(".")[0] in _PARTS else None


if Path(__file__).with_name("jobs").exists():
    sys.meta_path.append(_OtherName(lambda name: f"{__name__}.{name}" if name in _OLD else None))
else:
    for _folder in sys.path:
        if Path(_folder, __name__, "jobs").exists():
            raise ImportError(
                f"Batchmerge is installed in {_folder}, and {Path(__file__).parents[1]} is a checkout of it: Spark's "
                "workers would not know the other's modules. Fix: start it in another folder; or uninstall it, and "
                "install the checkout with `pip install --editable`"
            )
    sys.meta_path.insert(0, _OtherName(_in_checkout))


def __getattr__(name: str) -> Any:
    """Not before somebody asks: Dagster takes a second."""
    if name == "KafkaPipeline":
        from orchestration.components import KafkaPipeline

        return KafkaPipeline
    if name == "with_shared":
        from orchestration.definitions import with_shared

        return with_shared
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
