"""Spark's Python workers run in a folder of their session, which Spark deletes after 30 idle minutes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
_IMPORT = (
    "import os, sys; os.rmdir(os.getcwd()); sys.path.insert(0, sys.argv[1]); import jobs.changes.files; os.getcwd()"
)


def test_what_workers_import_needs_no_current_folder(tmp_path: Path) -> None:
    """pyiceberg looks for its settings in the current folder when it is imported."""
    folder = tmp_path / "session"
    folder.mkdir()

    done = subprocess.run(
        [sys.executable, "-c", _IMPORT, str(ROOT)], cwd=folder, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
