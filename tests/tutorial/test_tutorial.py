"""docs/tutorial.md: its own code blocks, in their order, and the numbers that it promises."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from jobs.connections_file import load_connections
from orchestration.cli import batchmerge
from resources.local.ports import free_port
from tests.kit.dagster_dev import running
from tests.kit.guides import ROOT, TUTORIAL, Block, all_blocks

CODE = ("jobs", "orchestration", "resources", "sql")
# Tables' rows after step 1, and records that its block sends, as the tutorial says.
ROWS, RECORDS = 299, 1001
_PATIENCE = 240


def _steps() -> dict[str, Block]:
    """The block of each step; what comes before the first step is "0"."""
    found: dict[str, Block] = {}
    for block in all_blocks(TUTORIAL):
        begun = re.match(r"\*\*(\d)\. ", block.introduction)
        number = begun[1] if begun else "0"
        assert number not in found, block.introduction
        found[number] = block
    return found


@dataclass
class Checkout:
    """A copy of the project that a user works in.

    Attributes:
        environment: what differs from the test's own.
        topic: stands for `orders` of the tutorial, so that it can be walked more than once.
    """

    folder: Path
    environment: dict[str, str]
    topic: str

    def __post_init__(self) -> None:
        for name in CODE:
            shutil.copytree(ROOT / name, self.folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.png"))
        for name in ("pyproject.toml", "workspace.yaml"):
            shutil.copyfile(ROOT / name, self.folder / name)
        (self.folder / ".venv").symlink_to(sys.prefix)
        # The virtual environment is that of the tests, which knows another copy of the project.
        self.environment["PYTHONPATH"] = str(self.folder)

    def sh(self, text: str) -> str:
        """What these commands print; each has to succeed."""
        given = {n: v for n, v in os.environ.items() if not n.startswith(("BATCHMERGE_", "DAGSTER_"))}
        done = subprocess.run(
            ["bash", "-e", "-c", "source .venv/bin/activate\n" + text.replace("orders", self.topic)],
            cwd=self.folder,
            env={**given, **self.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def write(self, block: Block) -> Path:
        """The file that the text before the block names."""
        named = re.search(r"`(orchestration/defs/.*?\.yaml)`", block.introduction)
        assert named, block.introduction
        file = self.folder / named[1].replace("orders", self.topic)
        file.parent.mkdir()
        file.write_text(block.text.replace("orders", self.topic))
        return file

    def walk(self) -> Path:
        """Steps 1 to 5; the pipeline file."""
        steps = _steps()
        self.sh(steps["1"].text)
        inferred = self.sh(steps["2"].text)
        assert all(column in inferred for column in ("customer: string", "amount: double", "placed: timestamp"))
        file = self.write(steps["3"])
        output = self.sh(steps["4"].text)
        assert f"{RECORDS:,} wait in Kafka" in output
        assert f"{RECORDS:,} read, {RECORDS:,} landed" in output
        assert output.count(f"rows {ROWS}, rows compared {ROWS}") == 3, output
        assert self.sh(steps["5"].text).split() == [str(ROWS)] * 3
        return file

    def wait_for_batch(self, number: int) -> None:
        """Until every table has come so far, and nothing waits."""
        until = time.monotonic() + _PATIENCE
        while True:
            # Not of all: the demo's pipelines have no topics yet.
            (pipeline,) = json.loads(self.sh("batchmerge status orders --json"))["pipelines"]
            if all(table["batch"] >= number and table["lag"] == 0 for table in pipeline["tables"]):
                return
            assert time.monotonic() < until, pipeline


def test_the_tutorial_promises_what_is_tested() -> None:
    steps = _steps()
    assert sorted(steps) == list("0123456")
    assert f"{ROWS} rows in each table" in steps["4"].text
    assert f"Each of the three prints {ROWS}:" in steps["5"].introduction
    promised = f"reads {RECORDS:,} more records as batch 2, and the tables still have {ROWS} rows"
    assert promised in TUTORIAL.read_text().replace("\n", " ")


@pytest.mark.slow
@pytest.mark.usefixtures("clickhouse", "bigquery")
def test_on_the_local_services(stack: Path, tmp_path: Path) -> None:
    user = Checkout(tmp_path / "project", {"BATCHMERGE_HOME": str(stack)}, "orders")
    steps = _steps()
    user.sh(steps["0"].text)
    file = user.walk()

    # The rest of step 5, but for looking at the page.
    file.write_text(file.read_text().replace("  paused: true\n", ""))
    command = [sys.executable, "-c", "from orchestration.cli import main; main()", "ui"]
    environment = {**user.environment, "DAGSTER_HOME": ""}
    with running(command, free_port(()), environment, tmp_path / "ui.log", user.folder):
        user.sh(steps["1"].text)
        user.wait_for_batch(2)
    assert user.sh(steps["5"].text).split() == [str(ROWS)] * 3


@pytest.mark.slow
@pytest.mark.usefixtures("clickhouse", "bigquery")
def test_on_services_of_ones_own(stack: Path, tmp_path: Path) -> None:
    """Step 6: nothing of this checkout's own runs, and its file of connections names what is elsewhere."""
    own = tmp_path / "own.yaml"
    shutil.copyfile(stack / "connections.yaml", own)
    user = Checkout(tmp_path / "project", {"BATCHMERGE_CONNECTIONS": str(own)}, "bookings")
    user.walk()
    assert not (user.folder / ".batchmerge" / "stack.json").exists()


def test_the_file_of_connections_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("x")
    for name in ("KAFKA_PASSWORD", "CATALOG_CREDENTIAL"):
        monkeypatch.setenv(name, "x")
    text = _steps()["6"].text.replace("/run/secrets/clickhouse", str(tmp_path / "secret"))
    (tmp_path / "connections.yaml").write_text(text)
    assert load_connections(tmp_path / "connections.yaml").names() == [
        "bigquery", "clickhouse", "kafka", "lake", "spark",
    ]  # fmt: skip


def test_the_file_and_the_connections_fit_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps 3 and 6 as `batchmerge check` reads them, before any service is asked."""
    (tmp_path / "secret").write_text("x")
    for name in ("KAFKA_PASSWORD", "CATALOG_CREDENTIAL"):
        monkeypatch.setenv(name, "x")
    steps = _steps()
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "defs.yaml").write_text(steps["3"].text)
    text = steps["6"].text.replace("/run/secrets/clickhouse", str(tmp_path / "secret"))
    (tmp_path / "connections.yaml").write_text(text)
    monkeypatch.setattr("orchestration.files.FOLDER", tmp_path)
    monkeypatch.setenv("BATCHMERGE_CONNECTIONS", str(tmp_path / "connections.yaml"))

    done = CliRunner().invoke(batchmerge, ["check", "orders", "--files-only"])

    assert done.exit_code == 0, done.output
    assert "pipeline orders: file and connection names" in done.output
