"""The end of a process that a test has started."""

from __future__ import annotations

import subprocess


def stop(process: subprocess.Popen[bytes], patience: float = 60) -> None:
    """Asks it to end, and kills it if it has not done so after so many seconds."""
    process.terminate()
    try:
        process.wait(timeout=patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
