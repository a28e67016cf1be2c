"""The current project: the folder, at or above the working directory, whose `pyproject.toml` is that of a Dagster
project (`[tool.dg.project]`); else the checkout that this code is in, if it is in one.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

_CHECKOUT = Path(__file__).resolve().parents[1]


def enclosing_project() -> Path | None:
    """The project that the working directory is in."""
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if _settings(folder)), None)


def project_folder() -> Path | None:
    return enclosing_project() or (_CHECKOUT if _settings(_CHECKOUT) else None)


def definitions_folder(project: Path) -> Path:
    """Where Dagster looks for the project's `defs.yaml` files, as `dg` says."""
    settings = _settings(project)
    module = str(settings.get("defs_module") or f"{settings.get('root_module')}.defs").replace(".", "/")
    in_source = project / "src" / module
    return in_source if in_source.is_dir() else project / module


def _settings(folder: Path) -> dict[str, object]:
    try:
        found = tomllib.loads((folder / "pyproject.toml").read_text()).get("tool", {}).get("dg", {}).get("project", {})
    except (OSError, ValueError, AttributeError):
        return {}
    return found if isinstance(found, dict) else {}
