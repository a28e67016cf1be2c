"""`batchmerge init`: a project of one's own, beside an installed package."""

from __future__ import annotations

import keyword
import re
import shutil
from importlib.util import find_spec
from pathlib import Path
from string import Template

import click

from orchestration.cli import output
from orchestration.files import OWN_FOLDER
from resources.errors import ConfigurationError

_TEXTS = Path(__file__).parent / "new_project"
_DEMO = ("flights", "nyc")
_NAME = re.compile(r"[a-z][a-z0-9_-]*")


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
def init(folder: Path) -> None:
    """Make a project in FOLDER: pyproject.toml, workspace.yaml, the demo's pipeline files, and connections to fill in.

    `dg check defs`, `dg dev` and all batchmerge commands work in it, `batchmerge demo` too. To add a pipeline to a
    Dagster project that you have, use `dg scaffold defs batchmerge.KafkaPipeline <name>` instead.
    """
    files = make_project(folder)
    for file in files:
        output.say(f"made {file}")
    output.say(f"\nNext: cd {folder}, then `batchmerge up` and `batchmerge demo`, or `dg dev`.")
    output.result({"project": str(folder.absolute()), "files": files})


def make_project(folder: Path) -> list[Path]:
    """Writes a project; returns its files.

    Raises:
        ConfigurationError: the folder is not empty, or its name cannot be a project's.
    """
    name = folder.absolute().name
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{name!r} cannot be a project's name",
            where=str(folder),
            remedy="use lower case letters, digits, - and _, and begin with a letter",
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError("the folder exists and is not empty", where=str(folder), remedy="name a new folder")
    module = name.replace("-", "_")
    if keyword.iskeyword(module) or _is_taken(module):
        raise ConfigurationError(
            f"{name!r} cannot be a project's name: {module} means something else in Python already",
            where=str(folder),
            remedy="give the folder another name",
        )
    package = folder / module
    for pipeline in _DEMO:
        (package / "defs" / pipeline).mkdir(parents=True)
        shutil.copyfile(OWN_FOLDER / pipeline / "defs.yaml", package / "defs" / pipeline / "defs.yaml")
    for text in ("pyproject.toml", "workspace.yaml"):
        template = Template((_TEXTS / f"{text}.in").read_text())
        (folder / text).write_text(template.substitute(name=name, module=module))
    shutil.copyfile(_TEXTS / "connections.production.yaml", folder / "connections.production.yaml")
    shutil.copyfile(_TEXTS / "gitignore", folder / ".gitignore")
    shutil.copyfile(_TEXTS / "definitions.py", package / "definitions.py")
    for part in (package, package / "defs"):
        (part / "__init__.py").touch()
    return sorted(file for file in folder.rglob("*") if file.is_file())


def _is_taken(module: str) -> bool:
    """Whether Python has a module of this name, which the project's own would hide."""
    found = find_spec(module)
    return found is not None and found.origin is not None
