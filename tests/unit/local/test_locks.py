"""Whoever waits for a lock says for whom; what a dead process held is free."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest

from resources.local.locks import alone_in, exclusive
from tests.kit.waiting import until

_HOLDS = """
import sys, time
from pathlib import Path
from resources.local.locks import exclusive
sys.argv = ["/usr/bin/batchmerge", "up", "secret"]
with exclusive(Path({path!r}), print):
    print("held", flush=True)
    time.sleep(600)
"""


def test_who_waits_says_for_whom_since_when_and_what_to_do(tmp_path: Path) -> None:
    path, messages = tmp_path / "folder" / "lock", list[str]()
    code = _HOLDS.format(path=str(path))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"

        def wait() -> None:
            with exclusive(path, messages.append):
                messages.append("in")

        waits = Thread(target=wait)
        waits.start()
        until(lambda: messages)
        holder.kill()
    waits.join()
    waiting, then = messages
    assert waiting.startswith(f"waiting for process {holder.pid} (batchmerge up), since 20"), waiting
    assert waiting.endswith(f" UTC, which holds {path}; if it hangs, end it and this goes on")
    assert then == "in"


def test_a_lock_that_is_free_is_taken_without_a_word(tmp_path: Path) -> None:
    path, messages = tmp_path / "lock", list[str]()
    for _ in range(2):
        with exclusive(path, messages.append):
            assert path.read_text()
        assert path.read_text() == ""
    assert messages == []


def test_of_many_in_one_folder_one_is_alone(tmp_path: Path) -> None:
    for _ in range(2):
        with alone_in(tmp_path) as first, alone_in(tmp_path) as second:
            assert (first, second) == (True, False)
    assert list(tmp_path.iterdir()) == []


def test_without_locks_everybody_is_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in some network folders; and in a folder that nothing has made yet."""

    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", flock)
    for folder in (tmp_path, tmp_path / "none"):
        with alone_in(folder) as alone:
            assert alone
