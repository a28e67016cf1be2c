"""The folder of pipeline files as Dagster loads it: that of this project, or one anywhere else."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType

import dagster as dg

from orchestration.files import OWN_FOLDER, VARIABLE
from resources.errors import ConfigurationError

_ELSEWHERE = "batchmerge_pipelines"


def load_folder(folder: Path) -> dg.Definitions:
    """Every pipeline of the folder, which needs no project around it: it may lie beside an installed package.

    Raises:
        ConfigurationError: there is no such folder.
    """
    if not folder.is_dir():
        raise ConfigurationError(
            "there is no such folder of pipeline files", where=str(folder), remedy=f"make it, or change {VARIABLE}"
        )
    with warnings.catch_warnings():
        # Links from assets to their files are Dagster's own use of what it calls beta.
        warnings.simplefilter("ignore", dg.BetaWarning)
        return dg.ComponentTree.from_module(defs_module=_module(folder), project_root=folder.parents[1]).build_defs()


def _module(folder: Path) -> ModuleType:
    """The folder as a package, which Dagster asks for; Python files in it are its modules."""
    if folder == OWN_FOLDER:
        return import_module("orchestration.defs")
    spec = ModuleSpec(_ELSEWHERE, None, is_package=True)
    spec.submodule_search_locations = [str(folder)]
    sys.modules[_ELSEWHERE] = module_from_spec(spec)
    return sys.modules[_ELSEWHERE]
