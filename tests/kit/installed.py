"""Batchmerge as people install it: a wheel of this checkout in an environment of its own.

What it depends on is lent by the environment of the tests, so that nothing is downloaded.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

from tests.kit.flow import ROOT

_SCRIPTS = ("dg", "dagster", "dagster-daemon", "dagster-webserver")


@dataclass(frozen=True)
class Environment:
    """A virtual environment."""

    folder: Path

    @property
    def variables(self) -> dict[str, str]:
        """The variables of every process in it: none leads to the checkout, or to a data folder elsewhere."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("BATCHMERGE_", "DAGSTER_"))}
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        return {**kept, "VIRTUAL_ENV": str(self.folder), "PATH": path}

    def call(self, *command: str, folder: Path, code: int = 0, path: str = "") -> str:
        """What a program of this environment says; it ends with this exit code.

        Args:
            path: PYTHONPATH.
        """
        done = subprocess.run(
            [str(self.folder / "bin" / command[0]), *command[1:]],
            env={**self.variables, "PYTHONPATH": path},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout
        return done.stdout


def install(folder: Path) -> Environment:
    """Builds the wheel and installs it."""
    _run("-m", "hatchling", "build", "-t", "wheel", "-d", str(folder))
    (wheel,) = folder.glob("*.whl")
    made = Environment(folder / "venv")
    venv.create(made.folder, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(made.folder)}))
    for one in Path(sysconfig.get_path("purelib")).iterdir():
        if "batchmerge" not in one.name and one.suffix != ".pth":
            (packages / one.name).symlink_to(one)
    python = made.folder / "bin" / "python"
    _run("-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index", str(wheel))
    for name in _SCRIPTS:
        _, rest = Path(sys.executable).with_name(name).read_text().split("\n", 1)
        (made.folder / "bin" / name).write_text(f"#!{python}\n{rest}")
        (made.folder / "bin" / name).chmod(0o755)
    return made


def _run(*arguments: str) -> None:
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
