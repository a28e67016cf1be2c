"""The folder of pipeline files as Dagster loads it: that of this project, or one anywhere else."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType

import dagster as dg
from dagster._core.errors import DagsterUserCodeProcessError
from dagster.components.core.component_tree import ComponentTreeException
from dagster_shared.error import SerializableErrorInfo

from orchestration.files import OWN_FOLDER, require_pipelines, wrong_files
from resources.errors import ConfigurationError

_ELSEWHERE = "batchmerge_pipelines"
# Dagster warns of its own conversion of the checks in our assets, whenever a code server answers.
warnings.filterwarnings("ignore", "Parameter `execution_type` of function `AssetsDefinition", dg.BetaWarning)


class WrongPipelineFiles(ComponentTreeException, DagsterUserCodeProcessError):
    """Mistakes in pipeline files, as Dagster shows them: their lines alone, without the frames that led there.

    Dagster takes the text of a `DagsterUserCodeProcessError` as it is, and wraps no `ComponentTreeException` into
    another one.
    """

    def __init__(self, problems: Sequence[ConfigurationError]) -> None:
        text = "\n".join(str(problem) for problem in problems) + "\n"
        info = SerializableErrorInfo(text, [], type(self).__name__)
        super().__init__(text, user_code_process_error_infos=[info])  # type: ignore[no-untyped-call]


def load_folder(folder: Path) -> dg.Definitions:
    """Every pipeline of the folder, which needs no project around it: it may lie beside an installed package.

    Raises:
        WrongPipelineFiles: there is no such folder, nothing is in it, or all that is wrong in all of its files.
    """
    try:
        require_pipelines(folder)
    except ConfigurationError as problem:
        raise WrongPipelineFiles([problem]) from None
    if problems := wrong_files(folder):
        raise WrongPipelineFiles(problems)
    with warnings.catch_warnings():
        # Links from assets to their files are Dagster's own use of what it calls beta.
        warnings.simplefilter("ignore", dg.BetaWarning)
        return dg.ComponentTree.from_module(defs_module=_module(folder), project_root=folder.parent.parent).build_defs()


def _module(folder: Path) -> ModuleType:
    """The folder as a package, which Dagster asks for; Python files in it are its modules."""
    if folder == OWN_FOLDER:
        return import_module(".defs", __package__)
    spec = ModuleSpec(_ELSEWHERE, None, is_package=True)
    spec.submodule_search_locations = [str(folder)]
    sys.modules[_ELSEWHERE] = module_from_spec(spec)
    return sys.modules[_ELSEWHERE]
