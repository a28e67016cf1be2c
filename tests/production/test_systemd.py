"""The unit in docs/production.md, with the command of each process, as systemd itself reads it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.guides import PRODUCTION, blocks

pytestmark = pytest.mark.production
# Commands of the guide's table that are programs of the virtual environment.
_COMMAND = re.compile(r"^\| [\w ]+ \| [\w ]+ \| `(dagster\S*) (.*?)` \|$", re.MULTILINE)
COMMANDS = _COMMAND.findall(PRODUCTION.read_text())


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize(("program", "arguments"), COMMANDS, ids=[program for program, _ in COMMANDS])
def test_systemd_accepts_the_unit(program: str, arguments: str, tmp_path: Path) -> None:
    (unit,) = [block.text for block in blocks(PRODUCTION, "systemd") if block.language == "ini"]
    # Here the programs are elsewhere; systemd looks whether they can be run.
    unit = re.sub(r"(?m)^ExecStart=.*$", f"ExecStart={Path(sys.executable).with_name(program)} {arguments}", unit)
    assert f"ExecStart={sys.exec_prefix}" in unit
    (tmp_path / f"{program}.service").write_text(unit)

    done = subprocess.run(
        ["systemd-analyze", "verify", f"./{program}.service"], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_every_process_of_dagster_has_a_command() -> None:
    assert [program for program, _ in COMMANDS] == ["dagster", "dagster-daemon", "dagster-webserver"]
